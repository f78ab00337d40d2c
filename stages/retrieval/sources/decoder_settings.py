"""Settings of the source `decoder`, and the models that it reads. Free of torch."""

from collections.abc import Mapping
from typing import Any, ClassVar

from stages.artifacts.artifact import Artifact
from stages.errors import UsageError
from stages.lineage.corpus import require_same_tokenizer, require_scoring
from stages.memory.hyperparameter import Hyperparameter, ReadingOptions
from stages.methods.config import TRAIN
from stages.models.config import model_of
from stages.retrieval.memory_input import HeldText, InputSearch, MemoryInput
from stages.retrieval.reading import Reading, SourceSettings

DECODER, CONTROL = "decoder", "decoder_control"
POLICIES = ("grid", "learned")
"""Policies of λ that need no distances."""


class DecoderModel(MemoryInput):
    """The model that learned the distributions of neighbours."""

    role: ClassVar[str] = DECODER
    named_by: ClassVar[str] = "model"
    words: ClassVar[str] = "the text that the decoder learned"

    def find(self, search: InputSearch, settings: ReadingOptions) -> Artifact:
        return search.store.get(settings.value("model"), "model")

    def text(self, artifact: Artifact) -> HeldText:
        return HeldText(artifact.input("tokens"), TRAIN)


class ControlModel(MemoryInput):
    """The same model, trained in the same way without neighbours: α = 0."""

    role: ClassVar[str] = CONTROL
    named_by: ClassVar[str] = "control"
    words: ClassVar[str] = "the text that the decoder learned"

    def find(self, search: InputSearch, settings: ReadingOptions) -> Artifact | None:
        if settings.value("control"):
            return search.store.get(settings.value("control"), "model")
        return control_of(search.store.get(settings.value("model"), "model"))

    def text(self, artifact: Artifact) -> HeldText:
        return HeldText(artifact.input("tokens"), TRAIN)


def control_of(decoder: Artifact) -> Artifact | None:
    """The model of the store that differs from a decoder by α = 0 alone; None: there is none."""
    for model in decoder.store.artifacts("model"):
        same_inputs = model.manifest.inputs == decoder.manifest.inputs
        if same_inputs and _without_neighbors(model) and _others(model) == _others(decoder):
            return model
    return None


def _without_neighbors(model: Artifact) -> bool:
    memory = model.config.get("memory") or {}
    return memory.get("method") == "memory-decoder" and memory.get("alpha") == 0


def _others(model: Artifact) -> dict[str, Any]:
    """Settings of a training run besides its memory."""
    return {name: value for name, value in model.config.items() if name != "memory"}


class DecoderSettings(SourceSettings):
    """Which model, and which model is its control."""

    word: ClassVar[str] = "decoder"
    means: ClassVar[str] = (
        "a model that learned the distributions of neighbours; nothing is searched"
    )
    amount: ClassVar[str] = "types"
    reported: ClassVar[Mapping[str, Hyperparameter]] = {
        "types": Hyperparameter("types", axis="types of tokens")
    }
    compares_keys: ClassVar[bool] = False
    quotes: ClassVar[bool] = False
    inputs: ClassVar[tuple[MemoryInput, ...]] = (DecoderModel(), ControlModel())
    model: str = ""
    """Reference of the model, such as one of `train --method memory-decoder`."""
    control: str = ""
    """Reference of its control; empty: the model of the store that differs by α = 0 alone."""

    def check(self, reading: Reading) -> None:
        if not self.model:
            raise ValueError(
                "model is missing: give model=REF, as train --method memory-decoder prints it"
            )
        if len(reading.sources) > 1:
            raise ValueError(
                "decoder is a distribution of its own, and joins no other source: give it a --memory of its own"
            )
        if reading.reader_settings.needs_scores:
            raise ValueError(
                f"decoder gives probabilities, not scores, so reader={reading.reader} cannot read it: leave reader out"
            )
        if reading.policy not in POLICIES:
            raise ValueError(
                f"{reading.weight_name}={reading.weight} reads distances, and decoder has none: "
                f"give a number, tune or learned"
            )

    def resolve(
        self, reading: Reading, read: Mapping[str, Artifact], splits: tuple[str, ...]
    ) -> Reading:
        for name in ("key", "similarity"):
            if getattr(reading.comparison, name) is not None:
                raise UsageError(
                    f"{reading.spelled}: a decoder compares no keys: leave {name} out."
                )
        decoder = read[DECODER]
        for model in (decoder, read.get(CONTROL, decoder)):
            _require_reads_alone(model)
            require_same_tokenizer(model.input("tokens"), read["tokens"], model)
        control = read[CONTROL].reference if CONTROL in read else ""
        return reading.changed({"model": decoder.reference, "control": control})

    def warnings(self, read: Mapping[str, Artifact]) -> list[str]:
        decoder = read[DECODER]
        if decoder.record == read["model"].record:
            return [f"{decoder.reference} is the evaluated model itself: an ensemble with itself."]
        if CONTROL in read:
            return []
        return [
            f"{decoder.reference} has no control: the same model without neighbours, so the table does not say what "
            "neighbours taught. Train it: the same command with --set memory.alpha=0."
        ]


def _require_reads_alone(model: Artifact) -> None:
    """Raises: UsageError for a model that cannot read a text by itself; ArtifactError for one that
    scores no tokens.
    """
    require_scoring(model)
    described = model_of(model)
    if described.reads.source:
        raise UsageError(
            f"{model.reference} translates, so it is no decoder beside a model of text."
        )
    if described.reads_neighbors:
        raise UsageError(f"{model.reference} reads neighbours itself, so it is no decoder.")
