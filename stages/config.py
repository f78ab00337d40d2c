"""Settings of a stage: typed, frozen, the part of its identity that a user chooses; and files of them."""

import tomllib
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from stages.errors import UsageError


class Settings(BaseModel):
    """A group of settings: unknown names, nan and infinities are errors, and nothing changes after it is made."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class StageConfig(Settings):
    """All settings of one stage that can change its result."""

    not_identity: ClassVar[frozenset[str]] = frozenset()
    """Fields that change how the work is done but not what comes out (logging, how often to save)."""

    def canonical(self) -> dict[str, Any]:
        """What the artifact's id covers: every field but those of `not_identity`, as JSON values."""
        return self.model_dump(mode="json", exclude=set(self.not_identity))


def read_toml(path: Path) -> dict[str, Any]:
    """A settings file as nested tables, its names with `_` for `-`.

    Raises: UsageError if it cannot be read or is no TOML.
    """
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise UsageError(f"{path} is no TOML: {error}.") from None
    table: dict[str, Any] = _underscored(content)
    return table


def _underscored(value: Any) -> Any:
    if isinstance(value, dict):
        return {key.replace("-", "_"): _underscored(below) for key, below in value.items()}
    return [_underscored(item) for item in value] if isinstance(value, list) else value
