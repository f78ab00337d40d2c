"""Bytes of memory and of files that training takes, by arithmetic, before anything is allocated."""

from typing import TYPE_CHECKING, Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.stage import Inputs
from stages.errors import ResourceError
from stages.examples import EXAMPLES, STREAMS
from stages.machine import memory_bytes
from stages.methods.config import TRAIN
from stages.models.config import BackboneConfig
from stages.numbers import size
from stages.training.config import TrainConfig

if TYPE_CHECKING:
    import numpy as np

NUMBER = 4
"""Bytes of a weight, a gradient, a moment or an activation, in float32."""
MOMENTS = {"adam": 2, "adamw": 2, "adagrad": 1, "sgd": 1}
"""Numbers that an optimizer keeps per weight."""


def require_room(config: TrainConfig, model: BackboneConfig, segments: int, device: str) -> None:
    """Refuse a training that cannot fit: weights, gradients, moments, and a batch's hidden states
    and layer memories.

    Args:
        model: the model to train, with its sizes filled in.
        segments: whole segments of the training split; a batch has no more.
        device: cpu or cuda.
    Raises: ResourceError with the needed and the available memory.
    """
    memory = _memory(device)
    weights = _weight_bytes(config, model)
    a_segment = _hidden_bytes(config, model)
    if device != "cpu" and (tables := _host_bytes(config, model)):
        if tables > memory_bytes():
            raise ResourceError(
                f"The tables of model.lookup take {size(tables)} in training, and the host has "
                f"{size(memory_bytes())}: choose fewer model.lookup.slots."
            )
        weights -= tables
    if weights + a_segment > memory:
        remembered = _remembered_bytes(config, model)
        of_layers = (
            f", {size(remembered)} of it what layers remember of a stream" if remembered else ""
        )
        raise ResourceError(
            f"A model of {_parameters(model):,} parameters takes {size(weights)} in training (weights, gradients, "
            f"moments of {config.optimizer.name}), a sequence of {config.segment_length:,} tokens more than "
            f"{size(a_segment)} beside it{of_layers}, and {device} has {size(memory)}: choose smaller sizes "
            "(model.width, model.layers, model.ffn_width, model.lookup, model.feed_forward, the vocabulary, "
            "--segment-length, --long-length)."
        )
    batch = min(config.batch_segments, max(1, segments))
    fitting = (memory - weights) // a_segment
    if batch > fitting:
        raise ResourceError(
            f"A batch of {batch:,} sequences of {config.segment_length:,} tokens takes more than "
            f"{size(batch * a_segment)} beside the model, and {device} has {size(memory)}: "
            f"--batch-tokens {fitting * config.segment_length} fits, with --accumulate for as large updates."
        )


def training_bytes(config: TrainConfig, model: BackboneConfig, segments: int) -> int:
    """Minimum bytes of memory: weights, gradients, moments, and a batch's hidden states."""
    batch = min(config.batch_segments, max(1, segments))
    return _weight_bytes(config, model) + batch * _hidden_bytes(config, model)


def _weight_bytes(config: TrainConfig, model: BackboneConfig) -> int:
    """Bytes of the weights, and of gradients and moments of the trained ones."""
    # A trained weight has itself, its gradient, its moments, and the method's own numbers for it.
    learning = NUMBER * (2 + MOMENTS[config.optimizer.name] + config.method_settings.copies)
    if config.lora is None:
        rows, width = model.host_table
        return (_parameters(model) - rows * width) * learning + _host_bytes(config, model)
    return _parameters(model) * NUMBER + learning * factor_numbers(model, config.lora)


def _host_bytes(config: TrainConfig, model: BackboneConfig) -> int:
    """Bytes of host tables: weights, moments, and a count of reads per row; gradients hold only the
    rows read.
    """
    rows, width = model.host_table
    return NUMBER * rows * (width * (1 + MOMENTS[config.optimizer.name]) + 1)


def factor_numbers(model: BackboneConfig, rank: int) -> int:
    """Number of weights in LoRA factors."""
    from stages.models.language_model import LanguageModel
    from stages.training.low_rank import added_numbers

    return added_numbers(LanguageModel(model), rank)


def _memory(device: str) -> int:
    if device == "cuda":
        import torch

        return int(torch.cuda.get_device_properties(device).total_memory)
    return memory_bytes()


def _hidden_bytes(config: TrainConfig, model: BackboneConfig) -> int:
    """Bytes of a segment: hidden states around every layer and read-outs of memory, which gradients
    need; and what layers remember."""
    layers: int = getattr(model, "layers", 1) + getattr(model, "encoder_layers", 0)
    numbers = model.width * (layers + 1)
    attention = model.layer_settings("attention")
    if attention is not None:
        # No list of layers: there may be very many.
        blocks = len(attention.layers or range(layers))
        numbers += blocks * attention.stored_activations(model)
    return NUMBER * config.segment_length * numbers + _remembered_bytes(config, model)


def _remembered_bytes(config: TrainConfig, model: BackboneConfig) -> int:
    """Bytes of a stream's state, for a model whose layers remember more than cached positions."""
    length = config.segment_length
    return model.state_bytes(length) if model.remembers(length) else 0


def _parameters(model: BackboneConfig) -> int:
    from stages.models.language_model import parameter_count

    try:
        return parameter_count(model)
    except RuntimeError:  # a single matrix has more elements than torch can count
        return 2**63


MOST_MOMENTS = 2
"""Optimizer moments per trained weight in a checkpoint."""


def saved_bytes(config: TrainConfig) -> tuple[int, int]:
    """Bytes of a file of weights, and the number of its trained weights."""
    from stages.models.language_model import unfilled_model

    model = unfilled_model(config.model)
    tensors = {id(tensor): tensor for tensor in model.state_dict(keep_vars=True).values()}
    learnt = sum(parameter.numel() for parameter in model.parameters())
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()), learnt


def checkpoint_bytes(config: TrainConfig, inputs: Inputs, weight_bytes: int) -> int:
    """Bytes of a checkpoint: all weights, moments and copies of trained ones, and the carried state
    of streams.
    """
    carried = 0
    copies = MOST_MOMENTS + config.method_settings.copies
    if config.model.carries_state:
        batch = min(config.batch_segments, max(1, segments(config, inputs["tokens"])))
        carried = batch * config.model.state_bytes(config.segment_length)
    if config.lora is None:
        return (1 + copies) * weight_bytes + carried
    return (
        weight_bytes + (1 + copies) * NUMBER * factor_numbers(config.model, config.lora) + carried
    )


def segments(config: TrainConfig, tokens: Artifact) -> int:
    """Number of examples of the training split: its documents, if these are examples, else its
    whole segments.
    """
    split = tokens.metrics["splits"][TRAIN]
    if EXAMPLES.settings(tokens.metrics.get("examples", STREAMS)).tasks:
        return int(split["documents"])
    return int(split["tokens"]) // config.segment_length


def epoch_batches(config: TrainConfig, inputs: Inputs) -> int:
    """Whole forward batches of one pass; if tasks are learnt in turn, each batch belongs to one
    task.
    """
    tokens = inputs["tokens"]
    if cut_by_tokens(tokens):
        return len(_batches_by_tokens(config, inputs))
    split = tokens.metrics["splits"][TRAIN]
    counts = [segments(config, tokens)] if config.order is None else split["task_documents"]
    size = min(config.batch_segments, min(counts))
    return sum(count // max(1, size) for count in counts)


def cut_by_tokens(tokens: Artifact) -> bool:
    """Whether batches are cut by tokens, since examples differ in length."""
    kind = tokens.metrics.get("examples", STREAMS)
    # Code is loaded only for a few kinds, since it needs torch.
    return (
        kind != STREAMS
        and not EXAMPLES.settings(kind).tasks
        and bool(EXAMPLES.load(kind).by_tokens)
    )


def _batches_by_tokens(config: TrainConfig, inputs: Inputs) -> "list[np.ndarray]":
    """The batches of a pass over examples of unequal length."""
    from stages.examples.examples import Corpus
    from stages.training.batches import batches_by_tokens

    packing = packing_of(inputs) if "batches" in inputs else None
    examples = Corpus.of(inputs["tokens"]).examples(TRAIN, config.cutting)
    return batches_by_tokens(examples, config.batch_tokens, config.seed, packing)


def packing_of(inputs: Inputs) -> "np.ndarray":
    """The packed examples in order, int64 [S]."""
    import numpy as np

    packed: Any = inputs["batches"].zarr("batches.zarr")
    return np.asarray(packed["order"][:])


def update_tokens(config: TrainConfig, inputs: Inputs) -> int:
    """Tokens that one update reads; a mean if examples differ in length."""
    tokens = inputs["tokens"]
    if cut_by_tokens(tokens):
        whole = int(tokens.metrics["splits"][TRAIN]["tokens"])
        return round(whole / len(_batches_by_tokens(config, inputs)) * config.accumulate)
    batch = min(config.batch_segments, max(1, segments(config, tokens)))
    return batch * config.segment_length * config.accumulate
