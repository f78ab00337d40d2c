"""Resolution of an imported model from its files: settings, size, and a check of its tokenizer."""

from pathlib import Path

from stages.artifacts.artifact import Artifact
from stages.artifacts.stage import Inputs
from stages.errors import ArtifactError, UsageError
from stages.lineage.corpus import require_sources
from stages.models.backbones.window_configs import HuggingFaceConfig
from stages.models.config import BackboneConfig
from stages.pretrained.config import ImportConfig
from stages.pretrained.encoder_decoder import Languages
from stages.pretrained.location import Location, location_of
from stages.pretrained.model import Imported, ModelSize, describe, model_size
from stages.pretrained.tokenizer import read_chat, same_tokenizer
from stages.text.huggingface import PretrainedTokenizer, SpecialTokens

USUAL_CONTEXT = 1024
"""Maximum default window, in inputs: memory and time grow with its square."""
USUAL_WINDOW = 32
"""Default window of an encoder, in inputs; it reads one window per token."""


def resolve_import(config: ImportConfig, inputs: Inputs) -> ImportConfig:
    """The settings with those of the model, which are found in its files.

    Raises: UsageError for a length or settings of a model that do not fit; ArtifactError for
        tokens of another tokenizer; DataError for a model that is not supported.
    """
    if config.model is not None:
        raise UsageError(
            "model: the settings of an imported model are those of its files; leave them out."
        )
    tokens = inputs["tokens"]
    location = checkpoint_of(inputs)
    languages = Languages(config.source_language, config.target_language, config.task)
    prefix = tokens.metrics.get("prefix_id")
    model: BackboneConfig = describe(location, prefix, languages, config.normalize)
    if isinstance(model, HuggingFaceConfig):
        model = model.model_copy(update={"chat": read_chat(location)})
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


def pretrained_size(config: ImportConfig, inputs: Inputs) -> ModelSize:
    """Size of the imported model, from the headers of its files."""
    assert isinstance(config.model, Imported)
    return model_size(checkpoint_of(inputs), config.model)


def checkpoint_of(inputs: Inputs) -> Location:
    """Location of the checkpoint's files, which were found before."""
    return location_of(Path(inputs.files[0].path))


def _require_own_tokens(model: BackboneConfig, location: Location, tokens: Artifact) -> None:
    """Check that tokens are those of the model's own tokenizer. Raises: ArtifactError."""
    is_same = tokens.metrics["tokenizer"] == PretrainedTokenizer.kind
    is_same = is_same and tokens.metrics["vocabulary_size"] <= (model.vocab_size or 0)
    if is_same:
        special = SpecialTokens.read(tokens.file(PretrainedTokenizer.FILE))
        is_same = same_tokenizer(location, special, tokens.file("tokenizer.json"))
    if not is_same:
        raise ArtifactError(
            f"{tokens.reference} was not made with the tokenizer of this model, so its ids mean something else: "
            "memlm tokenize --tokenizer FOLDER|FILE.gguf|hf:NAME, the model's own."
        )
