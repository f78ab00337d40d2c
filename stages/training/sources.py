"""The artifacts that a training run learns from, whether they fit each other, and warnings. Free of torch at import."""

from stages.artifacts.artifact import Artifact
from stages.artifacts.references import advised
from stages.artifacts.stage import Inputs
from stages.errors import ArtifactError, UsageError
from stages.examples import DOCUMENTS, STREAMS
from stages.lineage.corpus import require_same_tokenizer, require_scoring
from stages.lineage.neighbors import require_neighbors, require_some
from stages.methods.config import TRAIN, VALID, methods_for
from stages.models import IMPORTED
from stages.models.backbones.stream_configs import MemformerConfig
from stages.models.config import BackboneConfig, model_of
from stages.models.layers.settings import AttentionConfig, remembers
from stages.training.config import TrainConfig

KINDS = ("tokens", "batches", "neighbors", "episodes")
TOKENS_OF = {"batches": "tokens", "neighbors": "queries", "episodes": "corpus"}
"""Role of the tokens that another kind was made of."""


def learnt_from(config: TrainConfig, source: Artifact) -> dict[str, Artifact]:
    """Find a method's inputs, by role: tokens, and what was made of them if that is given.

    Raises: ArtifactError, naming the command that mends it, if it cannot learn from that.
    """
    takes = config.method_settings.takes
    if source.kind not in takes:
        raise ArtifactError(_wrong_source(config.method, takes, source))
    tokens = source if source.kind == "tokens" else source.input(TOKENS_OF[source.kind])
    kind = tokens.metrics.get("examples", STREAMS)
    if kind != STREAMS and not config.method_settings.padded:
        raise ArtifactError(
            f"{tokens.reference} holds {kind}, which are padded, and method {config.method!r} would learn the padding: "
            "use --method lm."
        )
    if config.method_settings.learns != "text" and kind != DOCUMENTS:
        raise ArtifactError(
            f"{tokens.reference} has no tasks, which method {config.method!r} learns: memlm tokenize --tasks DIR DIR …"
        )
    match source.kind:
        case "batches":
            _require_segments(config, source)
            return {"tokens": source.input("tokens"), "batches": source}
        case "neighbors":
            return {"tokens": _looked_up(config, source), "neighbors": source}
        case "episodes":
            return {"tokens": _keyed(source), "episodes": source}
    return {"tokens": source}


def _wrong_source(method: str, takes: tuple[str, ...], source: Artifact) -> str:
    """Message about a source that the method cannot learn from."""
    if "neighbors" in takes:
        return (
            f"Method {method!r} reads the neighbours of every token, and {source.reference} has none: find them "
            "(memlm precompute-neighbors INDEX) and train on what that prints."
        )
    if "episodes" in takes:
        return (
            f"Method {method!r} looks for the nearest documents of tasks, and {source.reference} has no keys of any: "
            "make them (memlm build-episodes ENCODER --tokens TOKENS) and train on what that prints."
        )
    tokens = source.input(TOKENS_OF[source.kind])
    return (
        f"{source.reference} is made for --method {methods_for(source.kind)}; give that, or its tokens to method "
        f"{method!r}: {tokens.advise('train', tokens.reference)}"
    )


def _require_segments(config: TrainConfig, batches: Artifact) -> None:
    if batches.config["segment_length"] == config.segment_length:
        return
    tokens, length = batches.input("tokens").reference, str(config.segment_length)
    raise ArtifactError(
        f"{batches.reference} has segments of {batches.config['segment_length']} tokens, but training is to use "
        f"{length}; pack others: {batches.advise('pack-batches', tokens, '--segment-length', length)}, "
        f"or train with --segment-length {batches.config['segment_length']}."
    )


def _looked_up(config: TrainConfig, neighbors: Artifact) -> Artifact:
    """The tokens whose neighbours are given, all that training reads among them, in the datastore that they were in."""
    tokens = neighbors.input("queries")
    for split in splits_read(tokens):
        require_neighbors(neighbors, split, config.method_settings.neighbors_read, "train --set memory.k=")
        require_some(neighbors, split)
    neighbors.find("datastore")
    return tokens


def _keyed(episodes: Artifact) -> Artifact:
    """The tokens whose documents have keys. Raises: ArtifactError for keys of another split than training reads."""
    if episodes.config["split"] != TRAIN:
        raise ArtifactError(
            f"{episodes.reference} has keys of {episodes.config['split']!r}, but training reads {TRAIN!r}: "
            f"memlm build-episodes --split {TRAIN}."
        )
    return episodes.input("corpus")


def splits_read(tokens: Artifact) -> list[str]:
    """The splits that training reads."""
    return [split for split in (TRAIN, VALID) if split in tokens.metrics["splits"]]


def fitting_init(config: TrainConfig, init: Artifact, tokens: Artifact) -> Artifact:
    """A model to start from.

    Raises: ArtifactError if its tokens mean something else than these, or it scores none; UsageError if it has another
        backbone than the settings name, or a gate that the method has no neighbours for.
    """
    require_scoring(init)
    _require_backbone(config, init)
    _require_neighbors_read(config, init)
    size, types = init.config["model"]["vocab_size"], tokens.metrics["vocabulary_size"]
    rows_to_spare = init.config["model"]["backbone"] == IMPORTED and size > types
    if size != types and not rows_to_spare:
        raise ArtifactError(
            f"{init.reference} has a vocabulary of {size}, but {tokens.reference} one of {types}; "
            "tokenize with the tokenizer of the model's own tokens."
        )
    require_same_tokenizer(init.input("tokens"), tokens, init)
    return init


def _require_backbone(config: TrainConfig, init: Artifact) -> None:
    has, named = init.config["model"]["backbone"], config.model.backbone
    if "backbone" in config.model.model_fields_set and named != has:
        raise UsageError(
            f"{init.reference}, which training is to begin from, is a {has}: leave the backbone {named!r} out, "
            f"or name a preset of a {has} (memlm presets)."
        )
    _require_attention(config, init)


def _require_attention(config: TrainConfig, init: Artifact) -> None:
    own, named = model_of(init), config.model
    if not isinstance(own, AttentionConfig) or not isinstance(named, AttentionConfig):
        return
    if "attention" in named.model_fields_set and named.attention.name != own.attention.name:
        raise UsageError(
            f"{init.reference}, which training is to begin from, has attention {own.attention.name!r}: leave a "
            f"backbone or preset with attention {named.attention.name!r} out."
        )


def _require_neighbors_read(config: TrainConfig, init: Artifact) -> None:
    if model_of(init).reads_neighbors and not config.method_settings.neighbors_read:
        raise UsageError(
            f"{init.reference} has a gate, which cannot be left out, but method {config.method!r} reads no neighbours: "
            f"memlm train NEIGHBORS --method {methods_for('neighbors')} --init-from {init.reference}, or begin from a "
            "model without a gate."
        )


def training_warnings(config: TrainConfig, inputs: Inputs) -> list[str]:
    """All warnings about the settings of a run."""
    found = (
        random_segments(config, inputs),
        untrained_memory(config),
        unlearned_memory(config),
        more_blocks_than_usual(config.model),
        cost_of_vocabulary(config.model),
    )
    return [warning for warning in found if warning is not None]


def random_segments(config: TrainConfig, inputs: Inputs) -> str | None:
    """Warning that batches are drawn at random, of a method that learns from packed ones where none are given."""
    if "batches" not in config.method_settings.takes or "batches" in inputs:
        return None
    tokens = inputs["tokens"]
    store, length = tokens.store.root, str(config.segment_length)
    given = [] if config.model.reads.source else ["--segment-length", length]
    packing = advised(store, "pack-batches", tokens.reference, *given)
    return (
        f"method {config.method!r} on plain tokens draws the segments of a batch at random (the ablation). For "
        f"segments that are alike: {packing} | {advised(store, 'train', '--method', config.method)}"
    )


def untrained_memory(config: TrainConfig) -> str | None:
    """Warning that a method reads every segment by itself, so that layers with a memory find it empty in training."""
    model = config.model
    if not isinstance(model, AttentionConfig) or not remembers(model, config.segment_length):
        return None
    from stages.methods import METHODS
    from stages.methods.method import SideInputs

    method = METHODS.load(config.method)(config.method_settings, SideInputs())
    if method.layout(model).streams:
        return None
    without = "" if model.lengths.long_length is None else ", or evaluate with --long-length 0"
    return (
        f"method {config.method!r} reads every segment by itself, so attention {model.attention.name!r} never "
        f"finds anything in its memory and does not learn to read it. Train with --method lm or trime-long{without}"
    )


def unlearned_memory(config: TrainConfig) -> str | None:
    """Warning that what writes the slots of a memformer never learns: a later segment of an update would teach it."""
    if not isinstance(config.model, MemformerConfig) or not config.model.slots or config.accumulate > 1:
        return None
    return (
        "an update reads one segment of each stream, so what writes memory learns nothing. Add --accumulate 4 to let "
        "gradients reach through four"
    )


def more_blocks_than_usual(model: BackboneConfig) -> str | None:
    """Warning about a layer in more blocks than its paper has it in; None: it is in no more."""
    if not isinstance(model, AttentionConfig):
        return None
    chosen = model.attention
    usual, taken = chosen.usual_blocks(model.layers), len(model.blocks_with("attention"))
    if usual is None or taken <= len(usual):
        return None
    return (
        f"attention {chosen.name!r} is in {taken} of {model.layers} blocks; its paper has it in {len(usual)}, and a "
        f"small model with it in all blocks was worse than a plain Transformer-XL. Leave model.attention.layers out, "
        f"or set it to {list(usual)}"
    )


def cost_of_vocabulary(model: BackboneConfig) -> str | None:
    """Warning about the cost of a full softmax over many types; None for few, or for an adaptive one."""
    import torch

    from stages.models.language_model import LanguageModel
    from stages.text.tokenizer import MANY_TYPES, vocabulary_cost

    types = model.vocab_size or 0
    if types <= MANY_TYPES or model.cutoffs:
        return None
    with torch.device("meta"):
        network = LanguageModel(model)
    weights = sum(parameter.numel() for parameter in network.vocabulary.parameters())
    all_weights = sum(parameter.numel() for parameter in network.parameters())
    cost = vocabulary_cost(weights, types * model.width, all_weights - weights)
    return (
        f"the vocabulary of {types:,} types takes {cost}. "
        "Adaptive softmax takes less (--set model.cutoffs=[2000,20000]), and so do fewer types: memlm tokenize "
        "--tokenizer bpe, --vocab-size or --min-count"
    )
