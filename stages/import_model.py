"""Stage import-model: pretrained model and tokens of its tokenizer -> model.

Weights are stored in memlm's own layout, so that later stages read them like those of a model
trained here.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from stages.artifacts.stage import Execution, InputFile, Inputs, Stage
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.errors import UsageError
from stages.pretrained.config import ImportConfig
from stages.pretrained.location import digest, locate
from stages.pretrained.sentence import dense_files
from stages.registry import load
from stages.training.config import MODEL

__all__ = ["ImportConfig", "ImportModel"]

CHECKPOINT = "checkpoint"
"""Role of the files of the pretrained model."""
RESOLUTION = "stages.pretrained.resolve:resolve_import"
"""Location of the resolution, which needs transformers to understand the model's files."""


class ImportModel(Stage[ImportConfig]):
    """Imports a causal model, an encoder or an encoder-decoder from transformers; roles: `tokens`,
    and files `checkpoint`."""

    name: ClassVar[str] = "import-model"
    kind: ClassVar[str] = "model"
    Config: ClassVar[type[StageConfig]] = ImportConfig
    schema = MODEL

    def inputs(self, config: ImportConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        """`checkpoint`: a folder, FILE.gguf or hf:NAME; `source`: tokens made with its tokenizer."""
        if not references.get(CHECKPOINT):
            raise UsageError("Which model? Name a folder, a .gguf file, or hf:NAME of the hub.")
        tokens = store.get(references["source"], "tokens")
        location = locate(references[CHECKPOINT])
        files = [
            InputFile(f"{CHECKPOINT}.{file.name}", str(file), digest(file))
            for file in location.weights()
        ]
        layers = [
            InputFile(f"{CHECKPOINT}.{file.parent.name}.{file.name}", str(file), digest(file))
            for file in dense_files(location)
        ]
        return Inputs({"tokens": tokens}, (*files, *layers))

    def resolve(self, config: ImportConfig, inputs: Inputs, execution: Execution) -> ImportConfig:
        resolved: ImportConfig = load(RESOLUTION)(config, inputs)
        return resolved
