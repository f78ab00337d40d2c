"""Settings of an imported model. Free of torch and of transformers."""

from typing import Annotated, Any, Literal

from pydantic import Field

from stages.errors import UsageError
from stages.models.config import BackboneConfig, Reads, Size, Stateless


class HuggingFaceConfig(Stateless, BackboneConfig):
    """A model of transformers between the two sides of a vocabulary; made by `import-model` alone."""

    backbone: Literal["huggingface"] = "huggingface"
    architecture: dict[str, Any] = Field(default_factory=dict)
    """Its own settings, `config.json` of transformers."""
    last_ffn: str | None = None
    """The module whose input is g; None: it has no feed-forward block, and `hidden` is its only key."""
    max_positions: Size | None = None
    """Longest window that it can read; None: any."""
    prefix: int | None = None
    """The token that it expects before every window; None: none."""
    input_scale: Annotated[float, Field(gt=0)] = 1.0
    """Factor of embeddings before the first block (Gemma: √d)."""

    @property
    def reads(self) -> Reads:
        keys = ("hidden",) if self.last_ffn is None else ("ffn-input", "hidden")
        longest = None if self.max_positions is None else self.max_positions - (self.prefix is not None)
        return Reads(keys, longest)

    def sizes(self, segment_length: int) -> dict[str, Any]:
        """Raises: UsageError if it was not imported, or cannot read segments as long."""
        if not self.architecture:
            raise UsageError("The backbone huggingface is imported, not trained from nothing: memlm import-model.")
        longest = self.reads.longest_context
        if longest is not None and segment_length > longest:
            raise UsageError(f"The model reads {longest} tokens at once, less than a segment of {segment_length}.")
        return {"vocab_size": self.vocab_size}  # rows of its own, more than types of its tokens
