"""Settings that sources of learned distributions have in common, and the models that they read. Free
of torch.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from stages.artifacts.artifact import Artifact
from stages.errors import UsageError
from stages.memory.hyperparameter import Hyperparameter, ReadingOptions
from stages.methods.config import TRAIN
from stages.retrieval.memory_input import HeldText, InputSearch, MemoryInput
from stages.retrieval.reading import Reading, SourceSettings

POLICIES = ("grid", "learned")
"""Policies of λ that need no distances."""
WEIGHTS = "model.safetensors"


class LearnedModel(MemoryInput):
    """A model whose distribution is read, named by the key `model`."""

    words: ClassVar[str] = "the text that it learned"

    def find(self, search: InputSearch, settings: ReadingOptions) -> Artifact | None:
        return search.store.get(settings.value("model"), "model")

    def text(self, artifact: Artifact) -> HeldText:
        return HeldText(artifact.input("tokens"), TRAIN)

    def stored_bytes(self, artifact: Artifact) -> int:
        return int(artifact.manifest.files[WEIGHTS]["bytes"])


class LearnedControl(LearnedModel):
    """The same model, trained in the same way without neighbours: α = 0."""

    def find(self, search: InputSearch, settings: ReadingOptions) -> Artifact | None:
        if settings.value("control"):
            return search.store.get(settings.value("control"), "model")
        return control_of(search.store.get(settings.value("model"), "model"))


def control_of(taught: Artifact) -> Artifact | None:
    """The model of the store that differs from a taught one by α = 0 alone; None: there is none."""
    memory = taught.config.get("memory") or {}
    if "alpha" not in memory:
        return None
    for model in taught.store.artifacts("model"):
        same_inputs = model.manifest.inputs == taught.manifest.inputs
        if same_inputs and _is_control(model, memory) and _others(model) == _others(taught):
            return model
    return None


FROM_NEIGHBORS = ("alpha", "k", "temperature")
"""Settings of a method that say what neighbours teach."""


def _is_control(model: Artifact, memory: Mapping[str, Any]) -> bool:
    control = model.config.get("memory") or {}
    return control.get("alpha") == 0 and _without_neighbors(control) == _without_neighbors(memory)


def _without_neighbors(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in FROM_NEIGHBORS}


def _others(model: Artifact) -> dict[str, Any]:
    """Settings of a training run besides its memory."""
    return {name: value for name, value in model.config.items() if name != "memory"}


class LearnedSettings(SourceSettings):
    """Which model, and which model is its control."""

    amount: ClassVar[str] = "types"
    reported: ClassVar[Mapping[str, Hyperparameter]] = {
        "types": Hyperparameter("types", axis="types of tokens")
    }
    compares_keys: ClassVar[bool] = False
    quotes: ClassVar[bool] = False
    inputs: ClassVar[tuple[MemoryInput, ...]]
    """The model, then its control."""
    reads_states: ClassVar[bool] = False
    """Whether it reads states of the evaluated model, which may be the learned model itself."""

    model: str = ""
    """Reference of the model, such as one of `train --method memory-decoder`."""
    control: str = ""
    """Reference of its control; empty: the model of the store that differs by α = 0 alone."""

    def check(self, reading: Reading) -> None:
        name = reading.sources[0]
        if not self.model:
            raise ValueError("model is missing: give model=REF, as train on neighbors prints it")
        if len(reading.sources) > 1:
            raise ValueError(
                f"{name} is a distribution of its own, and joins no other source: give it a --memory of its own"
            )
        if reading.reader_settings.needs_scores:
            raise ValueError(
                f"{name} gives probabilities, not scores, so reader={reading.reader} cannot read it: leave reader out"
            )
        if reading.policy not in POLICIES:
            raise ValueError(
                f"{reading.weight_name}={reading.weight} reads distances, and {name} has none: "
                "give a number, tune or learned"
            )

    def resolve(
        self, reading: Reading, read: Mapping[str, Artifact], splits: tuple[str, ...]
    ) -> Reading:
        for name in ("key", "similarity"):
            if getattr(reading.comparison, name) is not None:
                raise UsageError(
                    f"{reading.spelled}: a learned distribution compares no keys: leave {name} out."
                )
        taught, control = (read.get(memory_input.role) for memory_input in self.inputs)
        assert taught is not None, "find_artifacts found it"
        for model in (taught, control):
            if model is not None:
                self.require_fitting(model, read)
        references = {"model": taught.reference, "control": control.reference if control else ""}
        return reading.changed(references)

    def require_fitting(self, model: Artifact, read: Mapping[str, Artifact]) -> None:
        """Refuse a model that does not fit the evaluated one.

        Raises: UsageError or ArtifactError if the two cannot be read together.
        """

    def inputs_read(self, read: Mapping[str, Artifact]) -> list[MemoryInput]:
        # The control is the model of a row of its own.
        return [self.inputs[0]]

    def warnings(self, read: Mapping[str, Artifact]) -> list[str]:
        taught, control = (read.get(memory_input.role) for memory_input in self.inputs)
        assert taught is not None, "find_artifacts found it"
        if taught.record == read["model"].record and not self.reads_states:
            return [f"{taught.reference} is the evaluated model itself: an ensemble with itself."]
        if control is not None:
            return []
        return [
            f"{taught.reference} has no control: the same model without neighbours, so the table does not say what "
            "neighbours taught. Train it: the same command with --set memory.alpha=0."
        ]
