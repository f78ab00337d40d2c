"""Settings of a stage, typed and frozen: the part of its identity chosen by the user. Also reads
settings files.
"""

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from errno import EINVAL
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args, get_origin

from annotated_types import Le, Lt
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import CoreSchema, InitErrorDetails, core_schema

from stages.errors import UsageError
from stages.registry import Registry, import_outside

LARGEST = 2**53
"""Integers below it are exact in every JSON reader, and fit into every manifest."""


@dataclass(frozen=True)
class Spelling:
    """Form of a setting as a command-line option, if its type is not enough: `Annotated[str,
    Spelling("N|auto")]`.

    In a group of settings, only fields with a spelling are options. In the settings of a registered
    part, they are options in two cases. Either the part comes from outside, or the field of the
    part has a spelling, too.
    """

    metavar: str | None = None
    """Placeholder of the value in help pages; None: its type."""
    repeated: bool = False
    """Whether the option is repeated for each value; otherwise values are separated by commas."""
    help: str = ""
    """Text of the help page; empty: the docstring."""
    flag: str = ""
    """Name of the option; empty: that of the setting."""


class Settings(BaseModel):
    """A group of settings. Unknown names, nan and infinities are errors; an instance never changes."""

    not_options: ClassVar[frozenset[str]] = frozenset()
    """Rarely used fields without an option of their own; `--set` sets them."""
    has_presets: ClassVar[bool] = False
    """Whether omitted settings come from a preset instead of the defaults of fields."""
    # Validators are built at first use of a class: a command defines a hundred classes of settings,
    # but uses few.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    @model_validator(mode="after")
    def _integers_are_bounded(self) -> Self:
        """Raises: ValueError for an integer that a manifest could not hold, unless the field has a
        bound of its own.
        """
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            numbers = value if isinstance(value, tuple) else (value,)
            bounded = any(isinstance(mark, Lt | Le) for mark in field.metadata)
            if (
                any(isinstance(number, int) and abs(number) >= LARGEST for number in numbers)
                and not bounded
            ):
                raise ValueError(
                    f"{field.alias or name} is too large: numbers below {LARGEST:,} can be stored"
                )
        return self


class StageConfig(Settings):
    """All settings of one stage that can change its result."""

    not_identity: ClassVar[frozenset[str]] = frozenset()
    """Fields that do not change the result (logging, how often to save); manifests leave them out.
    """
    runs_models: ClassVar[bool] = False
    """Whether the stage runs models although it has no setting `precision`."""

    @property
    def source_kinds(self) -> tuple[str, ...] | None:
        """Kinds of artifacts that these settings take as source; None: those of the command."""
        return None

    def stored(self) -> dict[str, Any]:
        """All settings that can change the result, as JSON values."""
        return self.model_dump(mode="json", exclude=set(self.not_identity))

    def canonical(self) -> dict[str, Any]:
        """The settings covered by an artifact's id: `nondefaults` without the fields of
        `not_identity`.

        Defaults are not part of an id. So if you change one, raise the format version in
        `stages.artifacts.kinds`.
        """
        return {
            name: value
            for name, value in nondefaults(self).items()
            if name not in self.not_identity
        }


def nondefaults(settings: Settings) -> dict[str, Any]:
    """Settings that differ from their defaults, nested ones too, as JSON values.

    The name of a part is always included: it selects the class, whose own defaults apply to its
    fields.
    """
    changed: dict[str, Any] = {}
    for name, stored in settings.model_dump(mode="json").items():
        field = type(settings).model_fields[name]
        value = getattr(settings, name)
        names_part = (
            get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1
        )
        if names_part or value != field.get_default(call_default_factory=True):
            changed[name] = nondefaults(value) if isinstance(value, Settings) else stored
    return changed


@dataclass(frozen=True)
class OneOf:
    """Marks a field as the settings of a registered part: `Annotated[Base, OneOf(PARTS,
    by="name")]`.

    Each validation reads the registry, so parts registered later are legal, too. In the location of
    an error, the part's name precedes the field, as in pydantic's tagged unions.
    """

    registry: Registry
    by: str
    """The field that names the part."""
    default: str | None = None
    """The part for a table without a name; None: the name is required."""
    spelled_out: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Expands a table whose name is an abbreviation; None: there are no abbreviations."""

    def parse(self, value: Any) -> Any:
        """The settings described by a table; an instance of settings is returned unchanged.

        Raises: UsageError for an unknown name, and for settings whose name differs from the
            registered one; pydantic's ValidationError for settings that the part does not have.
        """
        value = self._in_full(value)
        name = self._name(value)
        settings = self.registry.settings(name)
        field = settings.model_fields.get(self.by)
        if field is None or field.default != name:
            where = f"{settings.__module__}:{settings.__qualname__}"
            written = json.dumps(name)
            raise UsageError(
                f"{where} is registered as {name!r}, and must say {self.by}: Literal[{written}] = {written}."
            )
        return settings.model_validate(value)

    def classes(self) -> list[type[Settings]]:
        """The settings of all parts."""
        return [self.registry.settings(name) for name in self.registry.names()]

    def outside_classes(self) -> list[type[Settings]]:
        """The settings of parts from outside the package."""
        import_outside()
        return [self.registry.settings(name) for name in self.registry.outside_names()]

    def _in_full(self, value: Any) -> Any:
        return self.spelled_out(value) if self.spelled_out and isinstance(value, Mapping) else value

    def _name(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return value.get(self.by, self.default)
        return getattr(value, self.by, self.default)

    def _validated(self, value: Any) -> Any:
        value = self._in_full(value)
        try:
            return self.parse(value)
        except ValidationError as error:
            details = [
                _below(self._name(value), problem) for problem in error.errors(include_url=False)
            ]
            raise ValidationError.from_exception_data(error.title, details) from None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validated)


def _below(name: str, problem: Any) -> InitErrorDetails:
    """The same error, located one level deeper, below `name`."""
    details = InitErrorDetails(
        type=problem["type"], loc=(name, *problem["loc"]), input=problem["input"]
    )
    return details | {"ctx": problem["ctx"]} if "ctx" in problem else details  # type: ignore[return-value]


def read_toml(path: Path) -> dict[str, Any]:
    """A settings file as nested tables, with `-` in names replaced by `_`.

    Raises: UsageError if it cannot be read or is not TOML.
    """
    try:
        table: dict[str, Any] = _underscored(tomllib.loads(read_regular(path)))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise UsageError(f"{path} is no TOML: {error}.") from None
    except RecursionError:
        raise UsageError(f"{path} is nested too deeply.") from None
    return table


def read_regular(path: Path) -> str:
    """The text of a file on disk. Raises: OSError or ValueError if it cannot be read, or is a
    device or a pipe.
    """
    if path.exists() and not path.is_file():
        raise OSError(EINVAL, "it is no regular file")
    return path.read_text("utf-8")


def _underscored(value: Any) -> Any:
    if isinstance(value, dict):
        return {key.replace("-", "_"): _underscored(below) for key, below in value.items()}
    return [_underscored(item) for item in value] if isinstance(value, list) else value
