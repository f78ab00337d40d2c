"""Settings of update-datastore, and those that are taken from the previous datastore."""

from typing import Annotated, Any, Literal

from pydantic import Field

from stages.artifacts.kinds import PREVIOUS
from stages.artifacts.stage import Inputs
from stages.config import Spelling
from stages.errors import UsageError
from stages.examples.cutting import WindowedConfig

TAKEN_OVER = ("key", "dtype", "reset", *WindowedConfig.model_fields)
"""Settings of the previous datastore that apply to both old and new rows."""


class UpdateConfig(WindowedConfig):
    """Settings of update-datastore. What its rows are made with is taken over from the datastore
    before.
    """

    not_options = frozenset(TAKEN_OVER)

    split: str | None = None
    """Split of the added tokens, all of which is added; None: train."""
    forget: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...], Spelling("DOCUMENT|@FILE", repeated=True)
    ] = ()
    """Documents to leave out: 12, 3-7, the name of one (name:12, where it reads as something else),
    or a file with one of these a line; repeatable."""
    key: Literal["ffn-input", "hidden"] | None = None
    """Representation that is stored."""
    dtype: Literal["float16", "float32"] | None = None
    """Type of the stored keys."""
    reset: Literal["none", "document"] | None = None
    """Whether each document is read by itself."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of the forward pass."""


def settings_of_previous(config: UpdateConfig, inputs: Inputs) -> dict[str, Any]:
    """Settings of the previous datastore. Raises: UsageError if others are requested."""
    previous = inputs[PREVIOUS]
    values = {name: previous.config[name] for name in TAKEN_OVER}
    for name, value in values.items():
        requested = getattr(config, name)
        if requested not in (None, value):
            advice = previous.advise("build-datastore", inputs["encoder"].reference)
            raise UsageError(
                f"The rows of {previous.reference} have {name} {value}, and so must those that are added: leave "
                f"{name} out, or build another: {advice}"
            )
    return values
