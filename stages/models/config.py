"""What a language model is made of; free of torch."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Discriminator, Field, Tag, TypeAdapter, model_validator

from stages.config import Settings
from stages.errors import UsageError, did_you_mean
from stages.models import BACKBONES

Size = Annotated[int, Field(gt=0)]
Probability = Annotated[float, Field(ge=0, lt=1)]


class VocabularyConfig(Settings):
    """Embeddings and softmax, full or adaptive: what every backbone stands between."""

    keys: ClassVar[tuple[str, ...]] = ("ffn-input", "hidden")
    """Representations that memory can be searched with; the first is the default of datastores."""
    carries_state: ClassVar[bool] = False
    """Whether reading a segment goes on from the one before it in the same stream."""

    vocab_size: Size | None = None
    """Token types V; None: those of the training tokens, filled in when training is resolved."""
    width: Size = 128
    """d, the size of hidden states and of word embeddings."""
    dropout: Probability = 0.1
    """Of embeddings and of what each layer hands on."""

    cutoffs: tuple[Size, ...] = ()
    """Adaptive input and softmax: frequency ranks where clusters end, increasing; empty: full softmax."""
    factor: Size = 4
    """Cluster c has embeddings of width d / factor^c."""
    tied: bool = True
    """Input and output share embeddings (and, if adaptive, projections)."""
    tail_dropout: Probability = 0.0
    """Of the projected hidden states that score the clusters after the first."""
    initial_range: Annotated[float, Field(gt=0)] | None = None
    """Embeddings, projections and the weights of an LSTM begin uniform in ± this; None: scaled to their width."""
    gate: Literal["vector", "scalar"] | None = None
    """What lets neighbours' tokens into the hidden state: a gate a dimension, or one a position; None: nothing."""

    @model_validator(mode="after")
    def _clusters_fit(self) -> Self:
        if any(b <= a for a, b in pairwise(self.cutoffs)):
            raise ValueError(f"cutoffs must increase, but are {list(self.cutoffs)}")
        if self.cutoffs and self.width // self.factor ** len(self.cutoffs) < 1:
            raise ValueError(
                f"width {self.width} cannot be divided by factor {self.factor} for each of {len(self.cutoffs)} cutoffs"
            )
        return self

    @property
    def longest_context(self) -> int | None:
        """Inputs of the longest window that the backbone can read; None: any."""
        return None

    @property
    def carried_positions(self) -> int | None:
        """Positions before its segment that an input attends to; None: what is carried has no length."""
        return None

    def sized(self, vocab_size: int, segment_length: int) -> Self:
        """The same model with the sizes that follow from the types of its tokens and the length of its segments."""
        return self.model_copy(update={"vocab_size": vocab_size})

    def reading(self, context: int, mem_length: int | None) -> Self:
        """The same model as it reads windows or segments of `context` inputs, carrying `mem_length` positions.

        Args:
            mem_length: None: as many as it does.
        """
        return self


class AttentionConfig(VocabularyConfig):
    """Blocks of self-attention and of a feed-forward layer, each on the normalized residual stream."""

    layers: Size = 2
    heads: Size = 4
    ffn_width: Size = 512
    activation: Literal["gelu", "relu"] = "gelu"
    attention_dropout: Probability = 0.0
    activation_dropout: Probability = 0.0
    """Inside the feed-forward block, after its activation."""

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        return self


class TransformerConfig(AttentionConfig):
    """A pre-norm decoder Transformer."""

    backbone: Literal["transformer"] = "transformer"
    positions: Literal["learned", "sinusoidal"] = "learned"
    max_positions: Size | None = None
    """Longest window that learned positions can read; None: the segment length of training."""

    @model_validator(mode="after")
    def _positions_fit(self) -> Self:
        if self.positions == "sinusoidal" and self.width % 2:
            raise ValueError(f"sinusoidal positions need an even width, not {self.width}")
        return self

    @property
    def longest_context(self) -> int | None:
        return self.max_positions if self.positions == "learned" else None

    def sized(self, vocab_size: int, segment_length: int) -> Self:
        """Raises: UsageError if segments are longer than the learned positions."""
        longest = self.max_positions
        if self.positions == "learned":
            longest = longest or segment_length
            if longest < segment_length:
                raise UsageError(f"model.max_positions is {longest}, less than a segment of {segment_length} tokens.")
        return self.model_copy(update={"vocab_size": vocab_size, "max_positions": longest})


class TransformerXLConfig(AttentionConfig):
    """A pre-norm Transformer that reads a stream in segments and carries hidden states from one to the next.

    Source: Dai et al. 2019 (arXiv:1901.02860).
    """

    carries_state: ClassVar[bool] = True

    backbone: Literal["transformer-xl"] = "transformer-xl"
    segment_length: Size | None = None
    """L, inputs of a segment; None: the segment length of training."""
    memory_length: Annotated[int, Field(ge=0)] | None = None
    """M, positions before its segment that an input attends to; None: the segment length."""

    @model_validator(mode="after")
    def _positions_fit(self) -> Self:
        if self.width % 2:
            raise ValueError(f"relative positions need an even width, not {self.width}")
        return self

    @property
    def carried_positions(self) -> int | None:
        return self.memory_length

    def sized(self, vocab_size: int, segment_length: int) -> Self:
        """Raises: UsageError if the model has segments of another length."""
        if self.segment_length not in (None, segment_length):
            raise UsageError(
                f"model.segment_length is {self.segment_length}, but segments of training have {segment_length} "
                "tokens; leave it out."
            )
        memory = segment_length if self.memory_length is None else self.memory_length
        sizes = {"vocab_size": vocab_size, "segment_length": segment_length, "memory_length": memory}
        return self.model_copy(update=sizes)

    def reading(self, context: int, mem_length: int | None) -> Self:
        memory = self.memory_length if mem_length is None else mem_length
        return self.model_copy(update={"segment_length": context, "memory_length": memory})


class LSTMConfig(VocabularyConfig):
    """Long short-term memory: reads a stream token by token and carries its state from segment to segment."""

    keys: ClassVar[tuple[str, ...]] = ("hidden",)
    carries_state: ClassVar[bool] = True

    backbone: Literal["lstm"] = "lstm"
    layers: Size = 1


def known_backbone(name: Any) -> str:
    """The name of a backbone. Raises UsageError, with the nearest name, if there is none."""
    if str(name) not in BACKBONES:
        raise UsageError(f"There is no backbone {name!r}; {did_you_mean(str(name), BACKBONES.names())}")
    return str(name)


def _backbone(settings: Any) -> str:
    """Which configuration is meant: the `backbone` of a table (absent: transformer) or of a made configuration."""
    if isinstance(settings, Mapping):
        return known_backbone(settings.get("backbone", "transformer"))
    return getattr(settings, "backbone", "transformer")


ModelConfig = Annotated[
    Annotated[TransformerConfig, Tag("transformer")]
    | Annotated[TransformerXLConfig, Tag("transformer-xl")]
    | Annotated[LSTMConfig, Tag("lstm")],
    Discriminator(_backbone),
]
"""Any model: the union of the backbones' configurations, told apart by `backbone`."""


def parse_model(settings: Mapping[str, Any]) -> ModelConfig:
    """The model that a table describes: `artifact.config["model"]`, or that of a TOML file.

    Raises: UsageError for an unknown backbone, pydantic's ValidationError for settings that it does not take.
    """
    adapter: TypeAdapter[ModelConfig] = TypeAdapter(ModelConfig)
    return adapter.validate_python(settings)
