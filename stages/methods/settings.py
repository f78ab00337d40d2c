"""Settings of the methods that learn text: plain language modelling, TRIME, SPALM, distilled and
sparse memory. Free of torch.
"""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field

from stages.errors import UsageError
from stages.methods.config import TRAIN, Batches, EvaluationDefaults, MethodSettings, Share
from stages.models.config import BackboneConfig
from stages.models.memory_mlp_settings import MemoryMlpSettings

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact
    from stages.artifacts.stage import Inputs


class LmConfig(MethodSettings):
    """Plain language modelling: it has no settings."""

    padded: ClassVar[bool] = True

    method: Literal["lm"] = "lm"


class InBatchConfig(MethodSettings):
    """One softmax over the vocabulary and positions of the same batch.

    Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674).
    """

    smoothable: ClassVar[bool] = False

    key: Literal["hidden", "ffn-input"] | None = None
    """Representation that memory is searched with; None: the backbone's first."""
    temperature: Annotated[float, Field(ge=1e-6)] = 1.0
    """τ: memory scores are divided by it, those of the vocabulary are not."""
    warmup: Share = 0.05
    """Share of the updates, the first ones, that minimize the plain loss."""
    backpropagate: bool = True
    """Whether gradients flow into the keys that are read, not only into those that read."""

    def with_key(self, model: BackboneConfig) -> Self:
        """The settings with the key named. Raises: UsageError if the model does not have it."""
        key = self.key or model.reads.keys[0]
        if key not in model.reads.keys:
            raise UsageError(
                f"memory.key: a model with backbone {model.backbone!r} has no key {key!r}; use {model.reads.keys[0]!r}."
            )
        return self.model_copy(update={"key": key})


class TrimeConfig(InBatchConfig):
    """The memory is the earlier positions of the same segment."""

    evaluation: ClassVar[EvaluationDefaults] = EvaluationDefaults(
        ("trime",), trained_with_memory=True
    )

    method: Literal["trime"] = "trime"

    def complete(self, model: BackboneConfig, batches: Batches) -> Self:
        return self.with_key(model)


CARRIED = 2
"""Consecutive segments if a backbone carries state: the current one and the one before (appendix
E).
"""


class TrimeLongConfig(InBatchConfig):
    """The memory is the earlier positions of the same segment, and goes on into the segments
    before.
    """

    evaluation: ClassVar[EvaluationDefaults] = EvaluationDefaults(
        ("trime-long",), trained_with_memory=True
    )

    method: Literal["trime-long"] = "trime-long"
    consecutive: Annotated[int, Field(gt=0)] | None = None
    """m, consecutive segments that share a memory; None: as many as leave an update
    `ENOUGH_DOCUMENTS`, two at the least. A backbone that carries state reads one of them at a time,
    those before are constant; None: 2."""
    scope: Literal["stream", "document"] = "document"
    """Whether positions of earlier segments count that belong to another document."""

    def complete(self, model: BackboneConfig, batches: Batches) -> Self:
        segments = max(1, batches.segments // batches.processes)
        # numbers of consecutive segments that divide those of a process
        legal = [number for number in range(1, segments + 1) if segments % number == 0]
        consecutive = self.consecutive or self._longest(model, batches, segments, legal)
        if not model.carries_state and consecutive not in legal:
            nearest = min(legal, key=lambda number: abs(number - consecutive))
            raise UsageError(
                f"memory.consecutive: a process has {segments} segments of a forward batch, which {consecutive} does "
                f"not divide; use {nearest}, or another --batch-tokens."
            )
        return self.with_key(model).model_copy(update={"consecutive": consecutive})

    def _longest(
        self, model: BackboneConfig, batches: Batches, segments: int, legal: list[int]
    ) -> int:
        """The longest legal run of segments that leaves an update enough documents."""
        if model.carries_state:
            return CARRIED
        # by the number of runs that all processes have
        lengths = {}
        for length in legal:
            if length > 1 or segments == 1:
                num_runs = batches.processes * segments // length
                lengths[num_runs] = length
        return lengths[batches.enough(lengths, same=1)]


OF_PAIRS = {"local_dropout": 1.0, "k": 8, "temperature": 10.0, "warmup": 0.1}
"""Defaults for translation: those of the authors' code, which never reads the own sentence."""


class TrimeExtConfig(InBatchConfig):
    """The memory is every other segment of the batch; batches hold segments that are alike."""

    takes: ClassVar[tuple[str, ...]] = ("tokens", "batches")
    padded: ClassVar[bool] = True
    evaluation: ClassVar[EvaluationDefaults] = EvaluationDefaults(
        ("trime",), own_datastore=("trime-ext",), trained_with_memory=True
    )

    method: Literal["trime-ext"] = "trime-ext"
    local_dropout: Share = 0.9
    """p: probability that a group goes without the local part of memory."""
    k: Annotated[int, Field(ge=0)] | None = None
    """Best visible positions that a position reads, and gradients flow into; 0: all. None: all, of
    pairs 8.
    """
    groups: Annotated[int, Field(gt=0)] | None = None
    """Equal groups that a forward batch is cut into; a segment reads the others of its group alone.
    1: of all processes; of more, each process has whole ones. None: as few as leave an update
    `ENOUGH_DOCUMENTS`."""

    def complete(self, model: BackboneConfig, batches: Batches) -> Self:
        segments = batches.segments
        processes = batches.processes
        if model.reads.source:
            return self._of_pairs(model, processes)
        if segments < 2:
            raise UsageError(
                "method trime-ext reads the other segments of a forward batch, but there is one alone; "
                "raise --batch-tokens, or lower --segment-length."
            )

        # A single group may span several processes, which exchange its keys; of several groups none
        # is divided.
        legal = []
        for number in range(1, segments // 2 + 1):
            is_whole = number == 1 or number % processes == 0
            if is_whole and segments % number == 0:
                legal.append(number)

        groups = self.groups or batches.enough(legal, batches.same_document or 0)
        if groups not in legal:
            shared = "" if processes == 1 else f", shared by {processes} processes,"
            nearest = min(legal, key=lambda number: abs(number - groups))
            raise UsageError(
                f"memory.groups: a forward batch of {segments} segments{shared} cannot be cut into "
                f"{groups} equal groups of two or more; use {nearest}, or another --batch-tokens."
            )
        return self.with_key(model).model_copy(update={"groups": groups})

    def _of_pairs(self, model: BackboneConfig, processes: int) -> Self:
        """Sentences of a batch differ in length and number, so a batch is one group, of one
        process.
        """
        if self.groups not in (None, 1):
            raise UsageError("memory.groups: a batch of pairs is one group; leave it out.")
        if processes > 1:
            raise UsageError("method trime-ext learns pairs in one process: leave torchrun out.")
        left_open = {
            name: value for name, value in OF_PAIRS.items() if name not in self.model_fields_set
        }
        return self.with_key(model).model_copy(update={"groups": 1, **left_open})


USUAL_DROPOUT = 0.5


class SpalmConfig(MethodSettings):
    """Tokens of precomputed neighbours enter the hidden state through a gate.

    Source: Yogatama et al. 2021 (SPALM, arXiv:2102.02557).
    """

    takes: ClassVar[tuple[str, ...]] = ("neighbors",)
    usual_backbone: ClassVar[str | None] = "transformer-xl"

    method: Literal["spalm"] = "spalm"
    k: Annotated[int, Field(gt=0)] = 4
    """Neighbours that a position reads, the best of those stored."""
    neighbor_dropout: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Probability that a position goes without its neighbours in training; None: `USUAL_DROPOUT`,
    of the gate alone 0. Not of the paper."""
    only_gate: bool = False
    """Whether all but the gate stays as the model that training begins from."""

    @property
    def neighbors_read(self) -> int:
        return self.k

    @property
    def continues(self) -> str | None:
        return (
            "memory.only_gate trains the gate of a trained model alone" if self.only_gate else None
        )

    def extend_model(self, model: BackboneConfig, tokens: "Artifact") -> BackboneConfig:
        return model.model_copy(
            update={"gate": model.gate or "vector", "gate_values": model.gate_values or "scaled"}
        )

    def complete(self, model: BackboneConfig, batches: Batches) -> Self:
        if self.neighbor_dropout is not None:
            return self
        return self.model_copy(
            update={"neighbor_dropout": 0.0 if self.only_gate else USUAL_DROPOUT}
        )


Positive = Annotated[int, Field(gt=0)]
FEW_NEIGHBORS = 8
"""Neighbours that give a distribution; with fewer it is nearly one token."""


class DistilledConfig(MethodSettings):
    """Labels are spread over the tokens of precomputed neighbours; the model reads no memory."""

    takes: ClassVar[tuple[str, ...]] = ("neighbors",)
    indirect_inputs: ClassVar[tuple[str, ...]] = ("soft-labels",)
    neighbor_splits: ClassVar[tuple[str, ...]] = (TRAIN,)
    smoothable: ClassVar[bool] = False

    alpha: Share = 0.5
    """α: weight of the neighbours' distribution in the loss; the next token has the rest. 0: plain
    language modelling, the control that shows what neighbours teach."""
    k: Positive | None = None
    """Neighbours of a position that give its distribution, the best of those stored; None: all."""
    temperature: Annotated[float, Field(gt=0)] | Literal["tune"] = "tune"
    """τ: distances are divided by it; `tune`: the best on 10,000 positions of train."""

    def cautions(self, batch: int, accumulate: int) -> list[str]:
        """A warning if labels come from so few neighbours that they are nearly one token."""
        if self.k is None or self.k >= FEW_NEIGHBORS:
            return []
        return [
            f"labels come from {self.k} neighbours of a token, so they are nearly one token (in the paper 1,024). Find "
            "more: memlm precompute-neighbors --k 256"
        ]

    def fitted(self, inputs: "Inputs") -> Self:
        if not self.alpha:
            # Neighbours are not read, so the control is the same model whatever they are.
            return self.model_copy(update={"k": None, "temperature": "tune"})
        neighbors = inputs["neighbors"]
        k = self.k or int(neighbors.config["k"])
        temperature = self.temperature
        if temperature == "tune":
            # NumPy is not needed where settings are only shown.
            from stages.methods.neighbor_labels import tuned_temperature

            temperature = tuned_temperature(neighbors, k)
        return self.model_copy(update={"k": k, "temperature": temperature})


class MemoryDecoderConfig(DistilledConfig):
    """A model of any backbone learns them.

    Source: Cao et al. 2025 (Memory Decoder, arXiv:2508.09874).
    """

    method: Literal["memory-decoder"] = "memory-decoder"


class MlpMemoryConfig(DistilledConfig):
    """An MLP on the representations of a trained model learns them.

    Source: Wei et al. 2025 (MLP Memory, arXiv:2508.01832).
    """

    method: Literal["mlp-memory"] = "mlp-memory"
    layers: Positive = 4
    """Blocks of the MLP."""
    ffn_width: Positive | None = None
    """Inner width of a block; None: four times the model's width."""
    key: Literal["hidden", "ffn-input"] | None = None
    """Representation of the model that the MLP reads; None: the backbone's first."""

    @property
    def continues(self) -> str | None:
        return "Method 'mlp-memory' reads the hidden states of a trained model"

    def extend_model(self, model: BackboneConfig, tokens: "Artifact") -> BackboneConfig:
        keys = model.reads.keys
        key = self.key or keys[0]
        if key not in keys:
            raise UsageError(
                f"memory.key: a model with backbone {model.backbone!r} has no key {key!r}; use {keys[0]!r}."
            )
        mlp = MemoryMlpSettings(layers=self.layers, ffn_width=self.ffn_width, key=key)
        return model.model_copy(update={"mlp": mlp})


class SparseMemoryConfig(MethodSettings):
    """Slots of a model with product keys learn, those that a batch uses more than the text before
    did.

    Source: Lin et al. 2025 (arXiv:2510.15103), section 3.
    """

    padded: ClassVar[bool] = True
    indirect_inputs: ClassVar[tuple[str, ...]] = ("background",)

    method: Literal["sparse-memory"] = "sparse-memory"
    slots: Positive = 500
    """Slots that an update changes, t."""
    background: Positive = 100
    """Batches of the text that the model was trained on, |B| (in the paper 1,000)."""

    @property
    def continues(self) -> str | None:
        return "Method 'sparse-memory' changes slots of a trained model"

    def extend_model(self, model: BackboneConfig, tokens: "Artifact") -> BackboneConfig:
        layer = getattr(model, "feed_forward", None)
        if layer is None or not hasattr(layer, "sub_keys"):
            raise UsageError(
                "Method 'sparse-memory' changes slots, and the model has none: begin from one that was trained with "
                "--set model.feed_forward.name=product-keys or memory-plus."
            )
        return model
