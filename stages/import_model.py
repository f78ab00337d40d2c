"""Stage import-model: pretrained model and tokens of its tokenizer -> model.

Weights are stored in memlm's own layout, so that later stages read them like those of a model
trained here.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from stages.artifacts.artifact import Artifact
from stages.artifacts.stage import Execution, InputFile, Inputs, Job, SerialStage
from stages.artifacts.store import Store
from stages.config import Spelling, StageConfig
from stages.errors import ArtifactError, ResourceError, UsageError
from stages.lineage.corpus import require_sources
from stages.machine import memory_bytes
from stages.models.config import BackboneConfig, ModelConfig
from stages.numbers import size
from stages.training.config import MODEL

if TYPE_CHECKING:
    from stages.pretrained.model import ModelSize

CHECKPOINT = "checkpoint"
"""Role of the files of the pretrained model."""
USUAL_CONTEXT = 1024
"""Maximum default window, in inputs: memory and time grow with its square."""
USUAL_WINDOW = 32
"""Default window of an encoder, in inputs; it reads one window per token."""


class ImportConfig(StageConfig):
    """Settings of import-model."""

    not_options = frozenset({"model"})

    segment_length: Annotated[int, Field(gt=0)] | None = None
    """Inputs of a window; None: 1,024, of an encoder 32, or as many as it can read."""
    source_language: Annotated[str | None, Spelling("LANGUAGE")] = None
    """Language that a multilingual translation model reads, as its tokenizer spells it: deu_Latn,
    de_DE, de.
    """
    target_language: Annotated[str | None, Spelling("LANGUAGE")] = None
    """Language that it writes."""
    task: Annotated[str | None, Spelling("TEXT")] = None
    """Words before every source of a translation model: "translate English to German:" (T5)."""
    normalize: bool = False
    """Scale keys of an encoder to length 1; one whose folder ends in Normalize does so anyway."""
    method: Literal["lm"] = "lm"
    """Training objective, as far as later stages are concerned."""
    memory: None = None
    """No memory took part in training."""
    model: ModelConfig | None = None
    """Settings of the model; found in its files."""


class ImportModel(SerialStage[ImportConfig]):
    """Imports a causal model, an encoder or an encoder-decoder from transformers; roles: `tokens`,
    and files `checkpoint`."""

    name: ClassVar[str] = "import-model"
    kind: ClassVar[str] = "model"
    Config: ClassVar[type[StageConfig]] = ImportConfig
    schema = MODEL

    def inputs(self, config: ImportConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        """`checkpoint`: a folder, FILE.gguf or hf:NAME; `source`: tokens made with its tokenizer."""
        from stages.pretrained.location import digest, locate
        from stages.pretrained.sentence import dense_files

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
        from stages.pretrained.encoder_decoder import Languages
        from stages.pretrained.model import describe

        if config.model is not None:
            raise UsageError(
                "model: the settings of an imported model are those of its files; leave them out."
            )
        tokens, location = inputs["tokens"], _location(inputs)
        languages = Languages(config.source_language, config.target_language, config.task)
        prefix = tokens.metrics.get("prefix_id")
        model: BackboneConfig = describe(location, prefix, languages, config.normalize)
        require_sources(model, tokens)
        if tokens.path.is_dir():  # not if a recipe only plans to make them
            _require_own_tokens(model, location, tokens)
        usual = USUAL_WINDOW if model.pools else USUAL_CONTEXT
        longest = model.reads.longest_context
        length = config.segment_length or (usual if longest is None else min(longest, usual))
        if longest is not None and length > longest:
            raise UsageError(
                f"--segment-length {length} is more than the {longest} tokens that the model can read."
            )
        return config.model_copy(update={"model": model, "segment_length": length})

    def run(self, job: Job[ImportConfig]) -> dict[str, Any]:
        needed, memory = pretrained_size(job.config, job.inputs).memory, memory_bytes()
        if needed > memory:
            raise ResourceError(
                f"Importing {_location(job.inputs).spec} takes {size(needed)} of memory, where its scores are compared "
                f"with those of transformers, and this machine has {size(memory)}: import it on a larger one, or a "
                "smaller model."
            )
        from safetensors.torch import save_file

        from stages.pretrained.model import Imported, read_weights

        assert isinstance(job.config.model, Imported)
        location, tokens = _location(job.inputs), job.inputs["tokens"]
        if not location.has_tokenizer:
            job.reporter.warning(
                f"{location.spec} has no tokenizer.json: it could not be checked whether {tokens.reference} was made "
                "with the model's own tokenizer; with another, perplexities mean nothing."
            )
        made = "keys" if job.config.model.pools else "scores"
        job.reporter.info(f"reading weights, and comparing {made} with those of transformers")
        weights = read_weights(location, job.config.model)
        job.draft.expect(sum(weight.nbytes for weight in weights.values()))
        save_file(weights, job.draft.add("model.safetensors"))
        settings = {
            "model": job.config.stored()["model"],
            "method": "lm",
            "memory": None,
            "training": None,
        }
        job.draft.add("config.json").write_text(json.dumps(settings, indent=2) + "\n", "utf-8")
        return {"parameters": sum(weight.numel() for weight in weights.values())}


def pretrained_size(config: ImportConfig, inputs: Inputs) -> "ModelSize":
    """Size of the imported model, from the headers of its files."""
    from stages.pretrained.model import Imported, model_size

    assert isinstance(config.model, Imported)
    return model_size(_location(inputs), config.model)


def _location(inputs: Inputs) -> Any:
    """Location of the checkpoint's files, which were found before."""
    from stages.pretrained.location import location_of

    return location_of(Path(inputs.files[0].path))


def _require_own_tokens(model: BackboneConfig, location: Any, tokens: Artifact) -> None:
    """Raises: ArtifactError unless the tokens are those of the model's own tokenizer."""
    from stages.pretrained.tokenizer import same_tokenizer
    from stages.text.huggingface import PretrainedTokenizer, SpecialTokens

    own = tokens.metrics["tokenizer"] == PretrainedTokenizer.kind
    own = own and tokens.metrics["vocabulary_size"] <= (model.vocab_size or 0)
    if own:
        special = SpecialTokens.read(tokens.file(PretrainedTokenizer.FILE))
        own = same_tokenizer(location, special, tokens.file("tokenizer.json"))
    if not own:
        raise ArtifactError(
            f"{tokens.reference} was not made with the tokenizer of this model, so its ids mean something else: "
            "memlm tokenize --tokenizer FOLDER|FILE.gguf|hf:NAME, the model's own."
        )
