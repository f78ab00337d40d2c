"""Settings of a language model. Free of torch."""

from collections.abc import Mapping
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from stages.config import OneOf, Settings
from stages.errors import UsageError, content_of
from stages.examples import Way
from stages.examples.cutting import Cutting, Lengths, WindowSettings
from stages.models import BACKBONES, DEFAULT_BACKBONE, NAMED, backbone_of
from stages.models.head_settings import HEADS
from stages.models.memory_mlp_settings import MemoryMlpSettings

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact


class NeighborSettings(Settings):
    """Settings of the gate, a part of every model's settings; they may be added to a trained model."""

    gate: Literal["vector", "scalar"] | None = None
    """Gate that adds neighbours' tokens to the hidden state: one value a dimension, or one a
    position; None: no gate."""
    gate_values: Literal["scaled", "raw"] | None = None
    """Representation of a neighbour's token: its embedding (`raw`), or sqrt(d) times that, as the
    first layer reads it (`scaled`). None: the method chooses."""

    @property
    def reads_neighbors(self) -> bool:
        """Whether tokens of neighbours are gated into its hidden states, apart from any other
        memory.
        """
        return self.gate is not None

    def reading_neighbors(self, wishes: "NeighborSettings", whose: str) -> Self:
        """The settings of a trained model, with a gate added as wished if it has none.

        Args:
            wishes: settings of the gate that a user names.
            whose: name of the model, for messages.
        Raises: UsageError if it has another gate.
        """
        current = {}
        if self.gate:
            current = {"gate": self.gate, "gate_values": self.gate_values or "raw"}
        chosen = {}
        for name in NEIGHBOR_SETTINGS:
            value = getattr(wishes, name)
            if value:
                chosen[name] = value

        for name, value in chosen.items():
            if current.get(name, value) != value:
                raise UsageError(
                    f"{whose} has model.{name}={current[name]}: leave model.{name} out."
                )
        return self.model_copy(update=chosen | current)


NEIGHBOR_SETTINGS = tuple(NeighborSettings.model_fields)
"""Names of settings that make a model read neighbours."""


Size = Annotated[int, Field(gt=0, lt=2**31)]
Probability = Annotated[float, Field(ge=0, lt=1)]


class VocabularyConfig(Settings):
    """Embeddings and softmax, full or adaptive."""

    scores_tokens: ClassVar[bool] = True
    """Whether there is a softmax; a model without one makes keys alone."""

    vocab_size: Size | None = None
    """Token types V; None: those of the training tokens, filled in when training is resolved."""
    width: Size = 128
    """d, the size of hidden states and of word embeddings."""
    dropout: Probability = 0.1
    """Dropout of embeddings and of each layer's output."""

    cutoffs: tuple[Size, ...] = ()
    """Adaptive input and softmax: frequency ranks where clusters end, increasing; empty: full
    softmax.
    """
    factor: Size = 4
    """Cluster c has embeddings of width d / factor^c."""
    tied: bool = True
    """Input and output share embeddings (and, if adaptive, projections)."""
    tail_dropout: Probability = 0.0
    """Dropout of the projected hidden states that score the clusters after the first."""
    initial_range: Annotated[float, Field(gt=0)] | None = None
    """Embeddings, projections and the weights of an LSTM begin uniform in ± this; None: scaled to
    their width.
    """
    score_scale: Annotated[float, Field(gt=0)] = 1.0
    """Factor of the vocabulary's scores (Cohere, Granite)."""
    score_bias: bool = False
    """Whether each token's score has a bias of its own (Phi, GPT-J)."""
    score_cap: Annotated[float, Field(gt=0)] | None = None
    """c, of scores that are bent to c tanh(score / c) (Gemma 2); None: they are not."""

    @model_validator(mode="after")
    def _softmax_fits(self) -> Self:
        if any(b <= a for a, b in pairwise(self.cutoffs)):
            raise ValueError(f"cutoffs must increase, but are {list(self.cutoffs)}")
        # A cluster without one dimension could not tell its words apart.
        if self.cutoffs and self.width // self.factor ** len(self.cutoffs) < 1:
            raise ValueError(
                f"width {self.width} cannot be divided by factor {self.factor} for each of {len(self.cutoffs)} cutoffs"
            )
        if self.cutoffs and (self.score_scale != 1 or self.score_bias or self.score_cap):
            raise ValueError(
                "score_scale, score_bias and score_cap are of a full softmax: leave them or cutoffs out"
            )
        return self


class StateArray(NamedTuple):
    """Maximum shape and dtype of one array in the state that a backbone carries."""

    shape: tuple[int, ...]
    dtype: Literal["float32", "int64"] = "float32"

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * {"float32": 4, "int64": 8}[self.dtype]


class Reads(NamedTuple):
    """Inputs that a backbone takes, and keys that it gives; by default windows of any length, and
    one key.
    """

    keys: tuple[str, ...] = ("hidden",)
    """Representations that can be keys of a memory; the first is the default of datastores."""
    longest_context: int | None = None
    """Length of the longest window that it can read, in inputs; None: any."""
    documents: bool = False
    """Whether the memory of its layers ends at document boundaries; then inputs have a
    `document_offset`.
    """
    source: bool = False
    """Whether each window is read with a source, as in translation."""
    decodes: bool = False
    """Whether it writes a translation token by token, from the state of `ReadsSource.begin`."""


class ChatSettings(Settings):
    """The form in which a model reads conversations."""

    template: str
    """Jinja template of its tokenizer."""
    tokens: dict[str, str] = Field(default_factory=dict)
    """Special tokens that the template may name: `bos_token`, `eos_token`."""


class BackboneConfig(NeighborSettings, VocabularyConfig):
    """Settings of a model: of its vocabulary and its backbone. Each backbone has a subclass, named
    by `backbone`.

    The defaults are those of a backbone that reads windows of any length and carries no state
    between them.
    """

    way: ClassVar[Way] = "windows"
    """How it reads a range of tokens: in windows, as one stream, or in a pooled window for each
    token.
    """
    left_open: ClassVar[tuple[str, ...]] = NEIGHBOR_SETTINGS
    """Settings that do not depend on the weights: a run that starts from a trained model may change
    them.
    """

    head: Annotated[Any, OneOf(HEADS, by="name")] | None = None
    """Part that scores a whole example; a method that learns tasks chooses it. None: it predicts
    tokens alone.
    """

    mlp: MemoryMlpSettings | None = None
    """MLP that learned what neighbours say, beside the model's own softmax; None: there is none."""

    if (
        TYPE_CHECKING
    ):  # a field of each backbone; as a field here it would come first in stored settings
        backbone: str

    @property
    def reads(self) -> Reads:
        """Inputs that it takes, and keys that it gives."""
        return Reads()

    @property
    def lengths(self) -> Lengths:
        """Lengths of what it carries: its settings `mem_length` and `attention.long_length`, if it
        has these.
        """
        attention: Any = getattr(self, "attention", None)
        return Lengths(getattr(self, "mem_length", None), getattr(attention, "long_length", None))

    def layer_settings(self, place: str) -> Any | None:
        """Settings of the layer that is chosen for a place of the blocks; None: nothing is chosen."""
        return None

    def blocks_with(self, place: str) -> tuple[int, ...]:
        """Blocks, counted from 1, that have the chosen layer at a place."""
        return ()

    @property
    def host_table(self) -> tuple[int, int]:
        """Rows and width of the tables of all blocks that stay in the host's memory."""
        return 0, 0

    def remembers(self, context: int) -> bool:
        """Whether attention layers have memory besides cached inputs, for segments of `context`
        inputs.
        """
        return False

    @property
    def learns_to_write(self) -> bool:
        """Whether what writes memory learns from the segments that come later in an update."""
        return False

    def state_spec(self, context: int) -> dict[str, StateArray]:
        """Arrays in the state of one stream that is read in segments of `context` inputs, by name;
        maximum sizes.
        """
        return {}

    def state_bytes(self, context: int) -> int:
        """Maximum bytes of the state of one stream that is read in segments of `context` inputs."""
        return sum(array.nbytes for array in self.state_spec(context).values())

    def sizes(self, segment_length: int) -> dict[str, Any]:
        """Settings of the backbone that follow from the segment length of training.

        Raises: UsageError if the model cannot be trained on such segments.
        """
        return {}

    def reading(self, windows: WindowSettings) -> Self:
        """The settings with which the model reads such windows or segments.

        Lengths that `windows` leaves open stay as they are. Raises: UsageError if it cannot read
        them.
        """
        return self

    @property
    def carries_state(self) -> bool:
        """Whether reading a segment starts from the state after the previous segment of its stream."""
        return self.way == "stream"

    @property
    def in_pieces(self) -> bool:
        """Whether it can read a window in pieces, each from the state after the previous one; `{}`
        is the first.
        """
        return False

    @property
    def longest_written(self) -> int | None:
        """Inputs of the windows in which it writes text; None: as many as in training."""
        return None

    @property
    def conversations(self) -> ChatSettings | None:
        """The form in which it reads conversations; None: it was not trained on any."""
        return None

    @property
    def ends_texts(self) -> bool:
        """Whether it learned to end a text that it writes."""
        return False

    @property
    def end_tokens(self) -> frozenset[int]:
        """Tokens that end a text, besides `<eos>`."""
        return frozenset()

    @property
    def pools(self) -> bool:
        """Whether a window becomes one pooled vector, for the token after it."""
        return self.way == "pooled"

    @property
    def key_width(self) -> int:
        """Numbers in a key of a datastore."""
        return self.width

    @property
    def longest_document(self) -> int | None:
        """Most inputs of a document that it can read, `<eos>` included; None: any number."""
        longest = self.reads.longest_context
        # [CLS] takes the place of `<eos>`, and [SEP] is not counted.
        return longest + 1 if self.pools and longest is not None else longest

    def cutting(self, windows: WindowSettings, by_document: bool = False) -> Cutting:
        """Settings with which a range of tokens is cut for this model.

        Args:
            by_document: whether each document is read separately.
        """
        return Cutting(self.way, windows.context, windows.stride, by_document, self.reads.documents)

    def sized(self, vocab_size: int, segment_length: int) -> Self:
        """The settings, completed with the sizes that follow from vocabulary size and segment
        length.

        Raises: UsageError if the model has another segment length, or cannot be trained on such
        segments.
        """
        own_length = getattr(self, "segment_length", None)
        if own_length not in (None, segment_length):
            raise UsageError(
                f"model.segment_length is {own_length}, but segments of training have {segment_length} tokens; leave it out."
            )
        return self.model_copy(update={"vocab_size": vocab_size, **self.sizes(segment_length)})


def spelled_out(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Expand a name of NAMED in `backbone` to the settings that it stands for, as they are stored.

    Raises: UsageError if the settings name another attention.
    """
    name = settings.get("backbone")
    if not isinstance(name, str) or name not in NAMED:
        return settings
    attention = settings.get("attention", {})
    if not isinstance(attention, Mapping):
        attention = dict(attention)
    if attention.get("name", NAMED[name]) != NAMED[name]:
        raise UsageError(
            f"The backbone {name!r} is a {backbone_of(name)} with attention {NAMED[name]!r}: leave it or "
            f"model.attention.name={attention['name']} out."
        )
    return {
        **settings,
        "backbone": backbone_of(name),
        "attention": {"name": NAMED[name], **attention},
    }


_BACKBONE = OneOf(BACKBONES, by="backbone", default=DEFAULT_BACKBONE, spelled_out=spelled_out)
ModelConfig = Annotated[BackboneConfig, _BACKBONE]
"""Any model: the settings of a registered backbone, which `backbone` names."""


def parse_model(settings: Mapping[str, Any]) -> BackboneConfig:
    """Parse the settings of a model, from a TOML file or from the settings of an artifact.

    Raises: UsageError for an unknown backbone, pydantic's ValidationError for settings that it does
    not have.
    """
    return _BACKBONE.parse(settings)


def model_of(artifact: "Artifact") -> BackboneConfig:
    """Settings of a model artifact. Raises: ArtifactError if they are not valid."""
    with content_of(artifact.path / "manifest.json", UsageError):
        return parse_model(artifact.config["model"])


def settings_left_open() -> set[str]:
    """Settings of any model that a run from a trained model may choose; `backbone` selects the
    preset.
    """
    return {"backbone"}.union(*(BACKBONES.settings(name).left_open for name in BACKBONES.names()))
