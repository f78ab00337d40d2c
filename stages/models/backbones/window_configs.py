"""Settings of networks that read each window independently; free of torch and of transformers."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from stages.config import OneOf, Settings
from stages.errors import UsageError
from stages.examples import Way
from stages.models.config import BackboneConfig, ChatSettings, Reads, Size
from stages.models.layers import WINDOW_ATTENTION
from stages.models.layers.settings import (
    FEED_FORWARD_KEYS,
    AttentionConfig,
    NoLookupSettings,
    SoftmaxSettings,
    SublayerSettings,
)


class TransformerConfig(AttentionConfig):
    """A pre-norm decoder Transformer."""

    backbone: Literal["transformer"] = "transformer"
    positions: Literal["learned", "sinusoidal"] = "learned"
    max_positions: Size | None = None
    """Longest window that learned positions can read; None: the segment length of training."""
    attention: Annotated[SublayerSettings, OneOf(WINDOW_ATTENTION, by="name")] = Field(
        default_factory=SoftmaxSettings
    )
    """The attention layer of the blocks."""

    @model_validator(mode="after")
    def _positions_fit(self) -> Self:
        if self.positions == "sinusoidal" and self.width % 2:
            raise ValueError(
                f"sinusoidal positions need an even width, not {self.width}: {self.width + 1} is"
            )
        return self

    @property
    def reads(self) -> Reads:
        longest = self.max_positions if self.positions == "learned" else None
        return Reads(FEED_FORWARD_KEYS, longest, self.lookup.reads_documents)

    @property
    def in_pieces(self) -> bool:
        blocks = range(1, self.layers + 1)
        return all(self.layer_in("attention", block).in_pieces for block in blocks)

    def sizes(self, segment_length: int) -> dict[str, Any]:
        """Settings that follow from the segment length.

        Raises: UsageError if segments are longer than the learned positions.
        """
        if self.positions == "sinusoidal":
            return {}
        longest = self.max_positions or segment_length
        if longest < segment_length:
            raise UsageError(
                f"model.max_positions is {longest}, less than a segment of {segment_length} tokens."
            )
        return {"max_positions": longest}


class EncoderDecoderConfig(AttentionConfig):
    """A pre-norm encoder-decoder Transformer, which reads a source sentence, and writes its
    translation.

    `layers` and `feed_forward` are the decoder's. Blocks of the encoder have dense feed-forward
    layers.
    """

    backbone: Literal["encoder-decoder"] = "encoder-decoder"
    encoder_layers: Size = 2
    activation: Literal["gelu", "relu"] = "relu"
    lookup: NoLookupSettings = Field(default_factory=NoLookupSettings)
    attention: SoftmaxSettings = Field(default_factory=SoftmaxSettings)
    """The only one there is, as there is no lookup."""

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.width % 2:
            raise ValueError(
                f"sinusoidal positions need an even width, not {self.width}: {self.width + 1} is"
            )
        if self.cutoffs:
            raise ValueError("vocabularies of a translation model are small: leave cutoffs out")
        return self

    @property
    def reads(self) -> Reads:
        return Reads(FEED_FORWARD_KEYS, source=True, decodes=True)


class ImportedConfig(BackboneConfig):
    """A model of transformers; only made by `import-model`."""

    # a field of each backbone; as a field here it would come before `backbone` in stored settings.
    if TYPE_CHECKING:
        architecture: dict[str, Any]

    @property
    def ends_texts(self) -> bool:
        return True

    @property
    def end_tokens(self) -> frozenset[int]:
        eos = self.architecture.get("eos_token_id")
        ids = eos if isinstance(eos, list) else [eos]
        return frozenset(id for id in ids if isinstance(id, int))

    def sizes(self, segment_length: int) -> dict[str, Any]:
        """Settings that follow from the segment length.

        Raises: UsageError if the model was not imported, or cannot read segments or documents of
        this length.
        """
        if not self.architecture:
            raise UsageError(
                f"The backbone {self.backbone} is imported, not trained from nothing: memlm import-model."
            )
        longest = self.reads.longest_context
        # A sentence with a source may have any length up to the longest, whatever the segment
        # length.
        if longest is not None and segment_length > longest and not self.reads.source:
            less = (
                f"{segment_length} of a document"
                if self.pools
                else f"a segment of {segment_length}"
            )
            raise UsageError(f"The model reads {longest} tokens at once, less than {less}.")
        return {"vocab_size": self.vocab_size}  # rows of its own, more than types of its tokens


class HuggingFaceConfig(ImportedConfig):
    """A causal language model of transformers, without its embeddings and softmax; only made by
    `import-model`.
    """

    backbone: Literal["huggingface"] = "huggingface"
    architecture: dict[str, Any] = Field(default_factory=dict)
    """Its own settings, `config.json` of transformers."""
    last_ffn: str | None = None
    """The module whose input is g; None: it has no feed-forward block, and `hidden` is its only
    key.
    """
    max_positions: Size | None = None
    """Longest window that it can read; None: any."""
    prefix: int | None = None
    """The token that it expects before every window; None: none."""
    input_scale: Annotated[float, Field(gt=0)] = 1.0
    """Factor of embeddings before the first block (Gemma: √d)."""
    scaled_positions: bool = False
    """Whether frequencies of positions are divided by a factor (linear scaling). It is recorded so
    that such a model has another id than one whose scaling was dropped.
    """
    chat: ChatSettings | None = None
    """How it reads conversations; None: it was not trained on any."""

    @property
    def reads(self) -> Reads:
        keys = ("hidden",) if self.last_ffn is None else ("ffn-input", "hidden")
        longest = (
            None if self.max_positions is None else self.max_positions - (self.prefix is not None)
        )
        return Reads(keys, longest)

    @property
    def conversations(self) -> ChatSettings | None:
        return self.chat

    @property
    def in_pieces(self) -> bool:
        is_kept_elsewhere = self.architecture.get("model_type") in STATE_IN_MODULES
        return not (is_kept_elsewhere or depends_on_length(self.architecture))

    @property
    def longest_written(self) -> int | None:
        return (self.reads.longest_context or ANY_LENGTH) if self.in_pieces else None


ANY_LENGTH = 1 << 30
"""Inputs of a window that is longer than every text."""
STATE_IN_MODULES = ("recurrent_gemma",)
"""Types of models whose modules keep a state, which a cache does not hold."""
LENGTH_DEPENDENT = ("dynamic", "longrope")
"""Scalings of positions that change with the length of a window, for its earlier inputs, too."""


def depends_on_length(architecture: Any) -> bool:
    """Whether settings of a model, `config.json`, scale positions by the length of the window.

    >>> depends_on_length({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}})
    True
    """
    if not isinstance(architecture, dict):
        return False
    scaling = (architecture.get("rope_type"), architecture.get("type"))
    scales = any(name in LENGTH_DEPENDENT for name in scaling)
    return scales or any(depends_on_length(value) for value in architecture.values())


class HuggingFaceEncoderDecoderConfig(ImportedConfig):
    """An encoder-decoder of transformers, without its embeddings and softmax; only made by
    `import-model`.
    """

    backbone: Literal["huggingface-encoder-decoder"] = "huggingface-encoder-decoder"
    architecture: dict[str, Any] = Field(default_factory=dict)
    """Its own settings, `config.json` of transformers."""
    last_ffn: str | None = None
    """The module of the decoder whose input is g; None: `hidden` is its only key."""
    max_positions: Size | None = None
    """Longest source and longest target that it can read; None: any."""
    prompt: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """First inputs of the decoder, in place of `<eos>`: the token that begins a target, and the
    target's language.
    """
    source_prefix: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Tokens before every source: its language (NLLB), or the task in words (T5)."""
    input_scale: Annotated[float, Field(gt=0)] = 1.0
    """Factor of embeddings before the first block (M2M: √d)."""

    @property
    def reads(self) -> Reads:
        keys = ("hidden",) if self.last_ffn is None else ("ffn-input", "hidden")
        longest = (
            None
            if self.max_positions is None
            else self.max_positions - max(0, len(self.prompt) - 1)
        )
        return Reads(keys, longest, source=True, decodes=True)


PoolingMode = Literal["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
"""Poolings of hidden states to the vector of a text, by their names in sentence-transformers."""


class DenseLayer(Settings):
    """A linear layer with an activation, from the vector of a text to another one."""

    name: Literal["dense"] = "dense"
    width: Size
    """Numbers of the resulting vector."""
    bias: bool = True
    activation: Literal["identity", "tanh", "relu", "gelu", "sigmoid", "silu"] = "tanh"

    def width_after(self, width: int) -> int:
        """Numbers of the resulting vector."""
        return self.width


class NormalizeLayer(Settings):
    """Scales the vector of a text to length 1."""

    name: Literal["normalize"] = "normalize"

    def width_after(self, width: int) -> int:
        """Numbers of the resulting vector: as many as before."""
        return width


VectorLayer = Annotated[DenseLayer | NormalizeLayer, Field(discriminator="name")]


class TextEncoderConfig(ImportedConfig):
    """An encoder of transformers that makes vectors of texts; only made by `import-model`."""

    scores_tokens: ClassVar[bool] = False
    way: ClassVar[Way] = "pooled"

    backbone: Literal["text-encoder"] = "text-encoder"
    architecture: dict[str, Any] = Field(default_factory=dict)
    """Its own settings, `config.json` of transformers."""
    pooling: PoolingMode | tuple[PoolingMode, ...] = "mean"
    """How a text becomes one vector; several poolings are joined in their order."""
    vector_layers: tuple[VectorLayer, ...] = ()
    """Layers that this vector passes through, in their order."""
    normalize: bool = False
    """Whether the last of these vectors is made 1 long."""
    before: tuple[int, ...] = ()
    """Tokens that its tokenizer puts before a text ([CLS])."""
    after: tuple[int, ...] = ()
    """Tokens that its tokenizer puts behind one ([SEP])."""
    longest: Size | None = None
    """Most tokens of a text that it can read, without these; None: any number."""
    input_scale: Annotated[float, Field(gt=0)] = 1.0
    """Factor of embeddings before the first block (Gemma: √d)."""
    scaled_positions: bool = False
    """Whether frequencies of positions are divided by a factor (linear scaling). It is recorded so
    that such a model has another id than one whose scaling was dropped.
    """

    @property
    def reads(self) -> Reads:
        return Reads(longest_context=self.longest)

    @property
    def pooling_modes(self) -> tuple[PoolingMode, ...]:
        """All poolings, in the order in which their vectors are joined."""
        return (self.pooling,) if isinstance(self.pooling, str) else self.pooling

    @property
    def key_width(self) -> int:
        width = self.width * len(self.pooling_modes)
        for layer in self.vector_layers:
            width = layer.width_after(width)
        return width
