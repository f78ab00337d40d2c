"""Settings of the source `decoder`, and the models that it reads. Free of torch."""

from collections.abc import Mapping
from typing import ClassVar

from stages.artifacts.artifact import Artifact
from stages.errors import UsageError
from stages.lineage.corpus import require_same_tokenizer, require_scoring
from stages.models.config import model_of
from stages.retrieval.memory_input import MemoryInput
from stages.retrieval.sources.learned_settings import (
    LearnedControl,
    LearnedModel,
    LearnedSettings,
)

DECODER = "decoder"
CONTROL = "decoder_control"


class DecoderModel(LearnedModel):
    """A model that reads the text by itself."""

    role: ClassVar[str] = DECODER


class DecoderControl(LearnedControl):
    """Its control."""

    role: ClassVar[str] = CONTROL


class DecoderSettings(LearnedSettings):
    """A second model of any backbone."""

    word: ClassVar[str] = "decoder"
    means: ClassVar[str] = "a model that learned what neighbours say; nothing is searched"
    inputs: ClassVar[tuple[MemoryInput, ...]] = (DecoderModel(), DecoderControl())

    def require_fitting(self, model: Artifact, read: Mapping[str, Artifact]) -> None:
        """Check that a model reads a text by itself, in the same tokens."""
        require_scoring(model)
        described = model_of(model)
        if described.reads.source:
            raise UsageError(
                f"{model.reference} translates, so it is no decoder beside a model of text."
            )
        if described.reads_neighbors:
            raise UsageError(f"{model.reference} reads neighbours itself, so it is no decoder.")
        require_same_tokenizer(model.input("tokens"), read["tokens"], model)
