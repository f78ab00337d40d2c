"""Settings of the source `mlp`, and the models that it reads. Free of torch."""

from collections.abc import Mapping
from typing import ClassVar

from stages.artifacts.artifact import Artifact
from stages.errors import ArtifactError, UsageError
from stages.models.config import model_of
from stages.retrieval.memory_input import MemoryInput
from stages.retrieval.sources.learned_settings import (
    WEIGHTS,
    LearnedControl,
    LearnedModel,
    LearnedSettings,
)

MLP = "mlp"
MLP_CONTROL = "mlp_control"
BASE = "init"
"""Role, among the inputs of the model, of the model whose representations it reads."""


class MlpModel(LearnedModel):
    """A model with an MLP memory; what it was begun from is the evaluated model."""

    role: ClassVar[str] = MLP

    def stored_bytes(self, artifact: Artifact) -> int:
        """Bytes of the MLP alone: the base is read in any case."""
        base = artifact.input(BASE).manifest.files[WEIGHTS]["bytes"]
        return super().stored_bytes(artifact) - int(base)


class MlpControl(LearnedControl):
    """Its control."""

    role: ClassVar[str] = MLP_CONTROL


class MlpSettings(LearnedSettings):
    """An MLP on the evaluated model's own representations."""

    word: ClassVar[str] = "mlp"
    means: ClassVar[str] = (
        "an MLP on the model's own states that learned what neighbours say; nothing is searched"
    )
    reads_states: ClassVar[bool] = True
    inputs: ClassVar[tuple[MemoryInput, ...]] = (MlpModel(), MlpControl())

    def require_fitting(self, model: Artifact, read: Mapping[str, Artifact]) -> None:
        """Check that a model has an MLP for the evaluated model."""
        if model_of(model).mlp is None:
            raise UsageError(
                f"{model.reference} has no MLP memory: name one that train --method mlp-memory made, or read it with "
                "--memory decoder:model=…."
            )
        base = model.manifest.inputs[BASE]
        evaluated = read["model"]
        # A model with an MLP of its own has the states of its base, which training left as it was.
        own_base = evaluated.manifest.inputs.get(BASE) if model_of(evaluated).mlp else None
        if not evaluated.matches(base) and own_base != base:
            raise ArtifactError(
                f"{model.reference} reads the states of {base.reference}, not of {evaluated.reference}: evaluate "
                f"{base.reference}, or train another: "
                f"{model.advise('train', 'NEIGHBORS', '--method', 'mlp-memory', '--init-from', evaluated.reference)}"
            )
