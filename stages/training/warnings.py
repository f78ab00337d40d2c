"""Warnings about the settings of a training run, and what a user should know of it. Free of torch at
import.
"""

from stages.artifacts.references import advised
from stages.artifacts.stage import Inputs
from stages.examples import STREAMS
from stages.methods.config import TRAIN
from stages.models.config import BackboneConfig
from stages.training.config import AUTO, TrainConfig


def training_warnings(config: TrainConfig, inputs: Inputs) -> list[str]:
    """All warnings about the settings of a run."""
    warnings = (
        random_segments(config, inputs),
        untrained_memory(config),
        unlearned_memory(config),
        *config.method_settings.cautions(config.batch_segments, config.accumulate),
        more_blocks_than_usual(config.model),
        statistics_of_padding(config, inputs),
        cost_of_vocabulary(config.model),
    )
    return [warning for warning in warnings if warning is not None]


def random_segments(config: TrainConfig, inputs: Inputs) -> str | None:
    """Warning if a method that learns from packed batches gets no packing, so that batches are
    random.
    """
    if "batches" not in config.method_settings.takes or "batches" in inputs:
        return None
    tokens = inputs["tokens"]
    store = tokens.store.root
    length = str(config.segment_length)
    options = [] if config.model.reads.source else ["--segment-length", length]
    packing = advised(store, "pack-batches", tokens.reference, *options)
    return (
        f"method {config.method!r} on plain tokens draws the segments of a batch at random (the ablation). For "
        f"segments that are alike: {packing} | {advised(store, 'train', '--method', config.method)}"
    )


def untrained_memory(config: TrainConfig) -> str | None:
    """Warning if a method reads each segment separately, so that memory layers are always empty in
    training.
    """
    model = config.model
    if not model.remembers(config.segment_length):
        return None
    # These load torch, which is not needed if the model exists already.
    from stages.methods import METHODS

    method = METHODS.load(config.method)(config.method_settings)
    if method.layout(model).streams:
        return None
    attention = model.layer_settings("attention")
    assert attention is not None, "it remembers"
    without = "" if model.lengths.remembered is None else ", or evaluate with --long-length 0"
    return (
        f"method {config.method!r} reads every segment by itself, so attention {attention.name!r} never "
        f"finds anything in its memory and does not learn to read it. Train with --method lm or trime-long{without}"
    )


def unlearned_memory(config: TrainConfig) -> str | None:
    """Warning if what writes memory never learns, since an update has no later segment to train it."""
    if config.accumulate > 1 or not config.model.learns_to_write:
        return None
    return (
        "an update reads one segment of each stream, so what writes memory learns nothing. Add --accumulate 4 to let "
        "gradients reach through four"
    )


def draws_of_memory(config: TrainConfig, inputs: Inputs) -> str | None:
    """Sentence with the number of documents that a method will draw from memory; None: it draws none."""
    settings = config.method_settings
    if not settings.draw_size or config.steps == AUTO:
        return None
    counts = inputs["tokens"].metrics["splits"][TRAIN]["task_documents"]
    size = config.accumulate * min(config.batch_segments, *counts)
    draws = settings.draws(config.steps, size)
    read = config.steps * size
    return (
        f"{config.method} will draw {draws:,} times from memory, {settings.draw_size:,} documents at most: "
        f"{draws * settings.draw_size:,} in addition to the {read:,} that it reads"
    )


def more_blocks_than_usual(model: BackboneConfig) -> str | None:
    """Warning about a layer in more blocks than in its paper; None: it is not in more."""
    attention = model.layer_settings("attention")
    if attention is None:
        return None
    blocks: int = getattr(model, "layers", 1)
    # No list of the blocks: a model that is then refused for its size may have very many.
    usual = attention.usual_blocks(blocks)
    num_layers = len(attention.layers or range(blocks))
    if usual is None or num_layers <= len(usual):
        return None
    return (
        f"attention {attention.name!r} is in {num_layers} of {blocks} blocks; its paper has it in {len(usual)}, and a "
        f"small model with it in all blocks was worse than a plain Transformer-XL. Leave model.attention.layers out, "
        f"or set it to {list(usual)}"
    )


def statistics_of_padding(config: TrainConfig, inputs: Inputs) -> str | None:
    """Warning if examples differ in length and a norm over all positions of a batch counts padding."""
    layer = getattr(config.model, "feed_forward", None)
    padded = inputs["tokens"].metrics.get("examples", STREAMS) != STREAMS
    if (
        not padded
        or bool(config.method_settings.indirect_inputs)
        or getattr(layer, "query_norm", None) != "batch"
    ):
        return None
    return (
        "means and variances of queries are over all positions of a batch, padding counted. Where a model begins here "
        "--set model.feed_forward.query_norm=layer counts none"
    )


def cost_of_vocabulary(model: BackboneConfig) -> str | None:
    """Warning about the cost of a full softmax over many types; None for few types or an adaptive
    softmax.
    """
    from stages.models.language_model import unfilled_model
    from stages.text.vocabulary_cost import MANY_TYPES, vocabulary_cost

    types = model.vocab_size or 0
    if types <= MANY_TYPES or model.cutoffs:
        return None
    network = unfilled_model(model)  # the model itself may be too large
    weights = sum(parameter.numel() for parameter in network.vocabulary.parameters())
    all_weights = sum(parameter.numel() for parameter in network.parameters())
    cost = vocabulary_cost(weights, types * model.width, all_weights - weights)
    return (
        f"the vocabulary of {types:,} types takes {cost}. "
        "Adaptive softmax takes less (--set model.cutoffs=[2000,20000]), and so do fewer types: memlm tokenize "
        "--tokenizer bpe, --vocab-size or --min-count"
    )
