"""Registries from names that users type to code, which is imported only on use."""

import hashlib
import os
import traceback
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from stages.errors import UsageError, did_you_mean

OUTSIDE = "MEMLM_PARTS"
"""Environment variable with the user's own modules of parts, separated by commas."""


CODE = "part"
"""Role of an outside module among the files from which an artifact was made."""


class UnknownPart(UsageError):
    """A part that is not registered, or cannot be imported, in this process."""


class Part(NamedTuple):
    """Location of a part with its own settings: the settings class, free of torch, and the code.

    Each is `"module:object"`.
    """

    settings: str
    code: str

    @classmethod
    def within(cls, package: str, settings: str, code: str) -> "Part":
        """A part with settings and code in modules of one package; each argument is
        `"module:object"`.
        """
        return cls(f"{package}.{settings}", f"{package}.{code}")


class Registry:
    """One kind of exchangeable part: each name has lazy targets, `"module:object"` or a `Part`.

    A part from outside the package is added by one line: `REGISTRY.targets["name"] = Part(…)`.
    `$MEMLM_PARTS` names the modules with such lines, so that commands and worker processes import
    them, too.
    """

    all: ClassVar[list["Registry"]] = []

    def __init__(
        self,
        kind: str,
        targets: Mapping[str, Any],
        others: "Sequence[Registry]" = (),
    ) -> None:
        """`others`: registries of other kinds whose names users may confuse with these."""
        self.kind = kind
        self.targets: dict[str, Any] = dict(targets)
        self.others = others
        self._own = dict(targets)
        Registry.all.append(self)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (
            name in self.targets or (import_outside() and name in self.targets)
        )

    def names(self) -> list[str]:
        return list(self.targets)

    def load(self, name: str) -> Any:
        """The code registered as `name`.

        Raises: UnknownPart, with the nearest name, if the name is unknown, or its module lacks the
        object.
        """
        part = self._part(name)
        return load(part.code if isinstance(part, Part) else str(part))

    def settings(self, name: str) -> Any:
        """The class of the settings of `name`. Raises: see `load`; also UsageError for a part
        without settings.
        """
        part = self._part(name)
        if not isinstance(part, Part):
            raise UsageError(
                f'The {self.kind} {name!r} lacks settings: register Part("module:Settings", "module:Code").'
            )
        return load(part.settings)

    def outside_names(self) -> list[str]:
        """Names of parts from outside the package, including replaced parts of the package."""
        return [name for name, part in self.targets.items() if self._own.get(name) != part]

    def outside_modules(self, names: Container[str]) -> set[str]:
        """Outside modules that contain the parts of these names."""
        outside = [self.targets[name] for name in self.outside_names() if name in names]
        return set().union(*map(self.modules_of, outside))

    def modules_of(self, part: Any) -> set[str]:
        """The modules that a part is in."""
        targets = [part] if isinstance(part, str) else part
        return {target.partition(":")[0] for target in targets}

    def _part(self, name: object) -> Any:
        if name not in self:
            others = [other.kind for other in self.others if name in other]
            near = near_part(str(name), self.targets)
            if others:
                near = f"{did_you_mean(str(name), self.targets)} (it is an {others[0]})"
            message = f"There is no {self.kind} {name!r}; {near}"
            raise UnknownPart(message) if isinstance(name, str) else UsageError(message)
        return self.targets[str(name)]


def near_part(name: str, names: Iterable[str]) -> str:
    """A suffix for a message about an unknown part: the nearest one, or all and how to add one."""
    near = did_you_mean(name, names)
    return f"{near} ({OUTSIDE} adds your own)" if near.startswith("known") else near


def outside_code(names: Container[str]) -> list[list[str]]:
    """Role (`part.MODULE`) and digest of each outside module with a part of one of these names.

    This code affects results without being a setting, so ids cover it like an input file.
    A module without a file, such as a notebook, is left out, and so is one of this package that a
    part uses again.
    """
    import_outside()
    modules = sorted(set().union(*(registry.outside_modules(names) for registry in Registry.all)))
    outside = [
        module for module in modules if module != "__main__" and not module.startswith("stages.")
    ]
    specs = [(module, find_spec(module)) for module in outside]
    files = [
        (module, spec.origin)
        for module, spec in specs
        if spec is not None and spec.origin is not None
    ]
    return [
        [f"{CODE}.{module}", hashlib.blake2b(Path(file).read_bytes()).hexdigest()]
        for module, file in files
    ]


def missing_modules(files: Iterable[Sequence[str]]) -> list[str]:
    """Modules among such roles and digests without a part in any registry of this process."""
    registered = set().union(
        *(registry.outside_modules(registry.targets) for registry in Registry.all)
    )
    roles = [file[0].partition(".") for file in files if file]
    return [
        module for role, _, module in roles if role == CODE and module and module not in registered
    ]


@cache
def import_outside() -> bool:
    """Import the modules that `$MEMLM_PARTS` names. Raises: UnknownPart if one cannot be imported."""
    for module in filter(None, map(str.strip, os.environ.get(OUTSIDE, "").split(","))):
        try:
            import_module(module)
        except Exception as error:
            if _is_missing(module, error):
                raise UnknownPart(f"{OUTSIDE} names {module}, but {_no_module(module)}") from error
            last = traceback.extract_tb(error.__traceback__)[-1]
            # The text of a SyntaxError contains its line already.
            where = (
                "" if isinstance(error, SyntaxError) else f" ({last.filename}, line {last.lineno})"
            )
            cause = f"{type(error).__name__}: {error}{where}"
            raise UnknownPart(
                f"{OUTSIDE} names {module}, which cannot be imported: {cause}."
            ) from error
    return True


def load(target: str) -> Any:
    """The object named by `"module:object"`. Raises: UnknownPart if the module or object does not
    exist.
    """
    module, _, attribute = target.partition(":")
    if not attribute:
        raise UnknownPart(f'A registry names {target!r}, which is not of the form "module:object".')
    try:
        holder = import_module(module)
    except ModuleNotFoundError as error:
        if not _is_missing(module, error):
            raise
        raise UnknownPart(f"A registry names {target}, but {_no_module(module)}") from error
    if not hasattr(holder, attribute):
        raise UnknownPart(
            f"A registry names {target}, but {module} has none; {did_you_mean(attribute, vars(holder))}"
        )
    return getattr(holder, attribute)


def _is_missing(module: str, error: Exception) -> bool:
    """Whether the module itself, or one of its packages, is missing, as opposed to a module that it
    imports.
    """
    return isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")


def _no_module(module: str) -> str:
    if module.endswith(".py"):
        return f"a module has no .py: say {Path(module).stem}, and let PYTHONPATH name its folder."
    return f"there is no module {module}: PYTHONPATH must name its folder."
