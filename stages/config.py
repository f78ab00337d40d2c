"""Settings of a stage: typed, frozen, and the part of its identity that a user chooses."""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


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
