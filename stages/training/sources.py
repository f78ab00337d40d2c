"""Inputs of a training run, and checks that they fit each other. Importing this module does not
import torch.
"""

from stages.artifacts.artifact import Artifact
from stages.errors import ArtifactError, UsageError
from stages.examples import EXAMPLES, STREAMS
from stages.lineage.corpus import require_same_tokenizer, require_scoring, require_text
from stages.methods import METHODS
from stages.methods.config import methods_for
from stages.models import ENCODER, IMPORTED
from stages.models.config import model_of
from stages.training import INPUTS
from stages.training.config import TrainConfig


def source_kinds() -> list[str]:
    """Kinds of artifacts that some method learns from."""
    kinds = [kind for name in METHODS.names() for kind in METHODS.settings(name).takes]
    return [*dict.fromkeys(kinds)]


def training_inputs(config: TrainConfig, source: Artifact) -> dict[str, Artifact]:
    """Find the inputs of training by role: the tokens, and the source itself if it was made from
    tokens.

    Raises: ArtifactError if the method cannot learn from the source (the message names a command
        that helps), if neighbours are missing or their datastore is gone, or if keys are not of the
        training split.
    """
    takes = config.method_settings.takes
    if source.kind not in takes:
        raise ArtifactError(_wrong_source(config.method, takes, source))
    tokens = source if source.kind == "tokens" else source.input(tokens_role(source.kind))
    kind = tokens.metrics.get("examples", STREAMS)
    if kind != STREAMS and not config.method_settings.padded:
        raise ArtifactError(
            f"{tokens.reference} holds {kind}, which are padded, and method {config.method!r} would learn the padding: "
            "use --method lm."
        )
    if config.method_settings.learns != "text" and not EXAMPLES.settings(kind).tasks:
        raise ArtifactError(
            f"{tokens.reference} has no tasks, but method {config.method!r} learns tasks: "
            "make them with memlm tokenize --tasks DIR DIR …"
        )
    if source.kind == "tokens":
        return {"tokens": tokens}
    for name in (source.kind, *config.method_settings.indirect_inputs):
        INPUTS.settings(name)().require(source, config)
    return {"tokens": tokens, source.kind: source}


def tokens_role(kind: str) -> str:
    """Role of the tokens among the inputs of a source of some kind."""
    role: str = INPUTS.settings(kind).tokens_role
    return role


def _wrong_source(method: str, takes: tuple[str, ...], source: Artifact) -> str:
    """Message about a source that the method cannot learn from."""
    if "tokens" not in takes:
        missing: str = INPUTS.settings(takes[0]).missing
        return missing.format(method=method, source=source.reference)
    tokens = source.input(tokens_role(source.kind))
    return (
        f"{source.reference} is for --method {methods_for(source.kind)}; use such a method, or train {method!r} on its "
        f"tokens: {tokens.advise('train', tokens.reference)}"
    )


def require_init(config: TrainConfig, init: Artifact, tokens: Artifact) -> Artifact:
    """Check that training can begin from a model, and return it.

    Raises: ArtifactError if its tokenizer differs, or if the method needs token scores and the
        model has none; UsageError if the settings name another backbone, or if the model reads
        neighbours and the method has none.
    """
    require = require_scoring if config.method_settings.scores_tokens else require_text
    require(init)
    _require_backbone(config, init)
    _require_neighbors_read(config, init)
    size = init.config["model"]["vocab_size"]
    types = tokens.metrics["vocabulary_size"]
    # Imported models may have embeddings for ids that their tokenizer never produces.
    rows_to_spare = init.config["model"]["backbone"] in (IMPORTED, ENCODER) and size > types
    if size != types and not rows_to_spare:
        raise ArtifactError(
            f"{init.reference} has a vocabulary of {size}, but {tokens.reference} one of {types}; "
            "tokenize with the tokenizer of the model's own tokens."
        )
    require_same_tokenizer(init.input("tokens"), tokens, init)
    return init


def _require_backbone(config: TrainConfig, init: Artifact) -> None:
    has = init.config["model"]["backbone"]
    named = config.model.backbone
    if "backbone" in config.model.model_fields_set and named != has:
        raise UsageError(
            f"{init.reference} is a {has}, but the settings name the backbone {named!r}: leave that out, "
            f"or name a preset of a {has} (memlm presets)."
        )
    attention = model_of(init).layer_settings("attention")
    named_attention = config.model.layer_settings("attention")
    if attention is None or named_attention is None:
        return
    if "attention" in config.model.model_fields_set and named_attention.name != attention.name:
        raise UsageError(
            f"{init.reference} has attention {attention.name!r}: leave out the backbone or preset "
            f"with attention {named_attention.name!r}."
        )


def _require_neighbors_read(config: TrainConfig, init: Artifact) -> None:
    if model_of(init).reads_neighbors and not config.method_settings.neighbors_read:
        raise UsageError(
            f"{init.reference} needs neighbours, but method {config.method!r} reads none: "
            f"memlm train NEIGHBORS --method {init.config['method']} --init-from {init.reference}, or begin from a "
            "model that reads none."
        )
