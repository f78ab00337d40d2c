"""The artifacts that a training run learns from, and whether they fit each other. Free of torch."""

from stages.artifacts.artifact import Artifact
from stages.errors import ArtifactError
from stages.evaluation.corpus import require_same_tokenizer
from stages.evaluation.lineage import require_neighbors
from stages.methods.config import MEMORY_CONFIGS, SpalmConfig
from stages.training.config import TrainConfig

KINDS = ("tokens", "batches", "neighbors")
TRAIN, VALID = "train", "valid"


def learnt_from(config: TrainConfig, source: Artifact) -> dict[str, Artifact]:
    """What a method learns from, by role: tokens, and what was made of them if that is given.

    Raises: ArtifactError, naming the command that mends it, if it cannot learn from that.
    """
    takes = ("tokens",) if config.memory is None else config.memory.takes
    if source.kind not in takes:
        raise ArtifactError(_wrong_source(config.method, takes, source))
    match source.kind:
        case "batches":
            _require_segments(config, source)
            return {"tokens": source.input("tokens"), "batches": source}
        case "neighbors":
            return {"tokens": _looked_up(config, source), "neighbors": source}
    return {"tokens": source}


def _wrong_source(method: str, takes: tuple[str, ...], source: Artifact) -> str:
    """What is said of a source that the method cannot learn from."""
    if "neighbors" in takes:
        return (
            f"Method {method!r} reads the neighbours of every token, and {source.reference} has none: find them "
            "(memlm precompute-neighbors INDEX) and train on what that prints."
        )
    able = [name for name, settings in MEMORY_CONFIGS.items() if source.kind in settings.takes]
    tokens = source.input({"batches": "tokens", "neighbors": "queries"}[source.kind])
    return (
        f"{source.reference} is made for --method {', '.join(able)}; give that, or its tokens to method "
        f"{method!r}: memlm train {tokens.reference}"
    )


def _require_segments(config: TrainConfig, batches: Artifact) -> None:
    if batches.config["segment_length"] == config.segment_length:
        return
    tokens, length = batches.input("tokens").reference, config.segment_length
    raise ArtifactError(
        f"{batches.reference} has segments of {batches.config['segment_length']} tokens, but training is to use "
        f"{length}; pack others: memlm pack-batches {tokens} --segment-length {length}, "
        f"or train with --segment-length {batches.config['segment_length']}."
    )


def _looked_up(config: TrainConfig, neighbors: Artifact) -> Artifact:
    """The tokens whose neighbours are given, all that training reads among them."""
    assert isinstance(config.memory, SpalmConfig)
    tokens = neighbors.input("queries")
    for split in splits_read(tokens):
        require_neighbors(neighbors, split, config.memory.k)
    return tokens


def splits_read(tokens: Artifact) -> list[str]:
    """The splits that training reads."""
    return [split for split in (TRAIN, VALID) if split in tokens.metrics["splits"]]


def fitting_init(init: Artifact, tokens: Artifact) -> Artifact:
    """A model to start from. Raises ArtifactError if its tokens mean something else than these."""
    size = init.config["model"]["vocab_size"]
    if size != tokens.metrics["vocabulary_size"]:
        raise ArtifactError(
            f"{init.reference} has a vocabulary of {size}, but {tokens.reference} one of "
            f"{tokens.metrics['vocabulary_size']}; tokenize with the tokenizer of the model's own tokens."
        )
    require_same_tokenizer(init.input("tokens"), tokens, init)
    return init
