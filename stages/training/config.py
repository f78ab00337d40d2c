"""Settings of a training run, and the schema of a model. Free of torch."""

from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, WrapValidator, model_validator

from stages.artifacts.schema import Figures, Schema
from stages.artifacts.schema import Positive as PositiveCount
from stages.config import Settings, Spelling, StageConfig
from stages.examples.cutting import Cutting, WindowSettings
from stages.methods import METHODS
from stages.methods.config import MemoryConfig, MethodSettings, with_method
from stages.models import NAMED, trainable_backbones
from stages.models.config import ModelConfig, Probability, Size, parse_model

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]

AUTO = 0
"""Stands for `auto` until `Train.resolve` puts a number in its place; no number that a user may
give.
"""
RESOLVED_ELSEWHERE: dict[str, None] = {"epochs": None, "long_length": None}
"""Settings of a run that are resolved into others: the steps, and the model's own."""
Steps = Annotated[
    Size, WrapValidator(lambda value, number: AUTO if value == "auto" else number(value))
]


class OptimizerConfig(Settings):
    """How gradients change weights."""

    name: Literal["adam", "adamw", "adagrad", "sgd"] = "adamw"
    """`sgd` uses Nesterov momentum (the papers' `nag`)."""
    lr: Annotated[Positive, Spelling()] = 3e-3
    """Highest learning rate, at the end of the warm-up."""
    betas: tuple[Probability, Probability] = (0.9, 0.98)
    """Decay of the first and second moments (adam, adamw)."""
    eps: Positive = 1e-8
    momentum: Probability = 0.99
    """Momentum of sgd."""
    weight_decay: NonNegative = 0.0
    """Applies to matrices and embeddings; decoupled for adamw, added to the gradient otherwise."""


class ScheduleConfig(Settings):
    """Learning rate over the steps, as a multiple of the optimizer's."""

    name: Literal["cosine", "inverse-sqrt", "constant"] = "cosine"
    warmup: Annotated[int, Field(ge=0)] = 0
    """Steps over which the learning rate rises linearly from 0."""
    final: Annotated[float, Field(ge=0, le=1)] = 0.0
    """The last learning rate of the cosine, as a share of the highest."""


class TrainConfig(StageConfig):
    """Settings of the stage `train`."""

    has_presets = True
    not_identity: ClassVar[frozenset[str]] = frozenset({"log_every"})
    not_options = frozenset({"clip_norm", "valid_every", "log_every", "wider", "deeper"})

    method: Annotated[
        str, Spelling("METHOD", help=f"Training method: {', '.join(METHODS.names())}.")
    ] = "lm"
    """Training objective, one of the registered methods."""
    memory: MemoryConfig | None = None
    """Settings of the memory, for methods that train with one."""
    model: Annotated[
        ModelConfig,
        Spelling(
            "BACKBONE",
            help=f"Network architecture: {', '.join(trainable_backbones())}; or a transformer-xl with a longer "
            f"memory: {', '.join(NAMED)}.",
        ),
    ] = Field(default_factory=partial(parse_model, {}))
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = Field(default_factory=ScheduleConfig)

    steps: Annotated[Steps, Spelling("N|auto")] = AUTO
    """Updates of the weights; auto: a number that suits the text and the model, however fast the
    machine is.
    """
    epochs: Positive | None = None
    """Passes over the training split in whole batches, instead of `steps`."""
    batch_tokens: Size = 1024
    """Tokens of one forward batch over all ranks, a multiple of the segment length; for sentence
    pairs the most, with padding."""
    order: Annotated[tuple[str, ...] | None, Spelling("TASK,TASK,…")] = None
    """Order in which tasks are learnt; None: that of the tokens."""
    accumulate: Size = 1
    """Forward batches of an update (gradient accumulation)."""
    segment_length: Size = 128
    """L, tokens of a segment; segments start at multiples of L in the split."""
    long_length: Annotated[int, Field(ge=0)] | None = None
    """Slots or entries of layers with a memory of their own, beyond carried positions; None: as the
    model says.
    """
    clip_norm: NonNegative = 0.0
    """Largest norm of the gradient; 0: no clipping."""
    lora: Annotated[Size | None, Spelling("RANK")] = None
    """Rank of LoRA factors, which are trained with the rows of added tokens while the initial model
    is frozen; None:
    train the whole model."""
    wider: Size = 1
    """Factor by which the initial model is made wider; its function stays the same, up to a little
    noise (ELLE).
    """
    deeper: Size = 1
    """Number of copies of each block of the initial model, in sequence; training recovers its
    function.
    """
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """ε: weight in the loss of the mean -log p over the vocabulary; validation does not use it."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of weights, dropout and order."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of the backbone's matrix products; the vocabulary is always scored in fp32. auto:
    bf16 on CUDA.
    """
    compile: bool = False
    """Compile the network first (torch.compile): updates are faster on a GPU, but hardly on a CPU.
    """
    valid_every: Annotated[int, Field(ge=0)] = 500
    """Steps between validations; 0: at the end only. Where `steps` is `auto` and this is not given:
    a 20th of them.
    """
    log_every: Size = 50
    """Steps between lines of training.jsonl."""

    @property
    def batch_segments(self) -> int:
        """Segments of one forward batch over all ranks."""
        return self.batch_tokens // self.segment_length

    @property
    def cutting(self) -> Cutting:
        """How the model reads the text: in segments, one after the other."""
        return self.model.cutting(WindowSettings(self.segment_length, self.segment_length))

    @property
    def source_kinds(self) -> tuple[str, ...]:
        return self.method_settings.takes

    @property
    def method_settings(self) -> MethodSettings:
        """Settings of the method: its `memory`, or the method alone."""
        return self.memory or METHODS.settings(self.method)()

    @model_validator(mode="before")
    @classmethod
    def _memory_of_the_method(cls, settings: Any) -> Any:
        """Settings of memory are those of the method."""
        if not isinstance(settings, dict):
            return settings
        method = settings.get("method", cls.model_fields["method"].default)
        return settings | {"memory": with_method(settings.get("memory"), method)}

    @model_validator(mode="after")
    def _smoothed_loss_is_plain(self) -> "TrainConfig":
        if self.label_smoothing and not self.method_settings.smoothable:
            raise ValueError(f"label_smoothing does not go with the loss of method {self.method!r}")
        if self.label_smoothing and (self.model.cutoffs or self.model.score_cap):
            raise ValueError(
                "label_smoothing is of a full softmax: leave it, or model.cutoffs and score_cap, out"
            )
        return self

    @model_validator(mode="after")
    def _compiled_once(self) -> "TrainConfig":
        if self.compile and self.method_settings.grows:
            raise ValueError(
                f"compile: method {self.method!r} makes the network anew before a domain, and what was compiled is of "
                "the one before: train without"
            )
        return self

    @model_validator(mode="after")
    def _host_tables_learn_by_rows(self) -> "TrainConfig":
        if not any(self.model.host_table):
            return self
        if self.optimizer.name not in ("adam", "adamw"):
            raise ValueError(
                f"model.lookup.on_host learns with adam or adamw, not with {self.optimizer.name}"
            )
        if self.compile:
            raise ValueError("model.lookup.on_host is not compiled: leave it, or compile, out")
        if self.method_settings.learns != "text":
            raise ValueError(
                f"method {self.method!r} learns whole tables: leave model.lookup.on_host out"
            )
        return self

    @model_validator(mode="after")
    def _whole_segments(self) -> "TrainConfig":
        if (
            self.model.reads.source
        ):  # examples are sentences; a batch holds the number that its tokens allow
            return self
        if self.batch_tokens % self.segment_length:
            near = max(1, self.batch_tokens // self.segment_length) * self.segment_length
            raise ValueError(
                f"batch_tokens {self.batch_tokens} is not a multiple of segment_length {self.segment_length}; {near} is"
            )
        return self


class ModelFigures(Figures):
    """Metrics of a model."""

    parameters: PositiveCount
    valid_perplexity: float | None = None
    passes: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    still_falling: bool | None = None

    @model_validator(mode="after")
    def _both_or_neither(self) -> Self:
        if ("passes" in self.model_fields_set) != ("still_falling" in self.model_fields_set):
            raise ValueError("passes and still_falling, of which one is missing")
        return self


MODEL = Schema(ModelFigures)
