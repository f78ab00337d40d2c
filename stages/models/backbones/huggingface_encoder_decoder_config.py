"""Settings of an imported model that translates. Free of torch and of transformers."""

from typing import Annotated, Any, Literal

from pydantic import Field

from stages.errors import UsageError
from stages.models.config import BackboneConfig, Reads, Size, Stateless


class HuggingFaceEncoderDecoderConfig(Stateless, BackboneConfig):
    """An encoder-decoder of transformers between the two sides of a vocabulary; made by `import-model` alone."""

    backbone: Literal["huggingface-encoder-decoder"] = "huggingface-encoder-decoder"
    architecture: dict[str, Any] = Field(default_factory=dict)
    """Its own settings, `config.json` of transformers."""
    last_ffn: str | None = None
    """The module of the decoder whose input is g; None: `hidden` is its only key."""
    max_positions: Size | None = None
    """Longest source and longest target that it can read; None: any."""
    prompt: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """First inputs of the decoder, in place of `<eos>`: the token that begins a target, and the target's language."""
    source_prefix: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Tokens before every source: its language (NLLB), or the task in words (T5)."""
    input_scale: Annotated[float, Field(gt=0)] = 1.0
    """Factor of embeddings before the first block (M2M: √d)."""

    @property
    def reads(self) -> Reads:
        keys = ("hidden",) if self.last_ffn is None else ("ffn-input", "hidden")
        longest = None if self.max_positions is None else self.max_positions - max(0, len(self.prompt) - 1)
        return Reads(keys, longest, source=True, decodes=True)

    def sizes(self, segment_length: int) -> dict[str, Any]:
        """Raises: UsageError if it was not imported."""
        if not self.architecture:
            raise UsageError(f"The backbone {self.backbone} is imported, not trained from nothing: memlm import-model.")
        return {"vocab_size": self.vocab_size}  # rows of its own, more than types of its tokens
