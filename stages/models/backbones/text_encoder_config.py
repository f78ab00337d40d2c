"""Settings of an imported encoder. Free of torch and of transformers."""

from typing import Any, ClassVar, Literal

from pydantic import Field

from stages.errors import UsageError
from stages.examples import Way
from stages.models.config import BackboneConfig, Reads, Size, Stateless


class TextEncoderConfig(Stateless, BackboneConfig):
    """A model of transformers whose inputs see those behind them; made by `import-model` alone."""

    scores_tokens: ClassVar[bool] = False
    way: ClassVar[Way] = "pooled"

    backbone: Literal["text-encoder"] = "text-encoder"
    architecture: dict[str, Any] = Field(default_factory=dict)
    """Its own settings, `config.json` of transformers."""
    pooling: Literal["mean", "cls", "max"] = "mean"
    """How a window becomes one vector: of all hidden states, or the first."""
    normalize: bool = False
    """Whether that vector is made 1 long."""
    before: tuple[int, ...] = ()
    """Tokens that its tokenizer puts before a text ([CLS])."""
    after: tuple[int, ...] = ()
    """Tokens that its tokenizer puts behind one ([SEP])."""
    longest: Size | None = None
    """Most tokens of a text that it can read, without these; None: any number."""

    @property
    def reads(self) -> Reads:
        return Reads(longest_context=self.longest)

    def sizes(self, segment_length: int) -> dict[str, Any]:
        """Raises: UsageError, since it predicts nothing that it could be trained on."""
        raise UsageError("The backbone text-encoder is imported, and makes keys alone: memlm import-model.")
