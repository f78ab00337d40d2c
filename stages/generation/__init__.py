"""Text generation by a model with any combination of memories, and the passages that support the
text.

This module has the settings of a request. Free of torch.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from stages.config import Settings, Spelling
from stages.errors import UsageError


class GenerationRequest(Settings):
    """A request for text."""

    prompt: str = ""
    """Text to go on from; None: none, the start of a text."""
    max_tokens: Annotated[int, Field(ge=1)] = 100
    """Tokens to write."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    """Log-probabilities are divided by it; 0 takes the likeliest token."""
    top_k: Annotated[int, Field(ge=1)] | None = None
    """Draw from this many of the likeliest tokens."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """Draw from the fewest likeliest tokens that hold this probability together."""
    seed: Annotated[int, Field(ge=0)] = 0
    """The same seed writes the same text."""
    stop_at_eos: bool | None = None
    """End where <eos> is drawn, or a token that ends texts of an imported model; None: of an
    imported model.
    """
    stop: Annotated[tuple[str, ...] | None, Spelling("TEXT", repeated=True)] = None
    """End before this text; it is not written."""
    chat: bool = False
    """The prompt is what a user says, in the form of an imported model's own conversations."""
    draft: Literal["none", "exact"] = "none"
    """Let the text of an exact index suggest what follows, and read several tokens at once: the
    same text, sooner.
    """
    attribute: bool = False
    """Afterwards list the training passages that carried each token."""
    batch_size: Annotated[int, Field(ge=1)] = 8
    """Texts that are written together."""

    @model_validator(mode="after")
    def _draws(self) -> Self:
        if self.temperature == 0 and (self.top_k, self.top_p) != (None, None):
            raise UsageError(
                "--temperature 0 always takes the likeliest token: leave --top-k and --top-p out."
            )
        if "" in (self.stop or ()):
            raise UsageError("--stop is empty: name the text that ends what is written.")
        return self
