"""Whether a training run fits the machine, by arithmetic, before anything is allocated."""

from collections.abc import Callable
from typing import cast

from stages.errors import ResourceError
from stages.machine import memory_bytes
from stages.models.config import BackboneConfig
from stages.models.layers.hashed_ngrams_settings import HashedNgramsSettings
from stages.models.layers.product_keys_settings import ProductKeysSettings
from stages.models.layers.settings import AttentionConfig, DenseSettings, Place, StreamAttentionSettings, remembers
from stages.numbers import size
from stages.training.config import TrainConfig

NUMBER = 4
"""Bytes of a weight, a gradient, a moment or an activation, in float32."""
MOMENTS = {"adam": 2, "adamw": 2, "adagrad": 1, "sgd": 1}
"""Numbers that an optimizer keeps a weight."""


def require_room(config: TrainConfig, model: BackboneConfig, segments: int, device: str) -> None:
    """Refuse what cannot fit: weights, gradients and moments; and of a batch, the hidden states of every layer, and
    what these remember.

    Args:
        model: that is to be trained, its sizes filled in.
        segments: whole segments of the training split; a batch has no more.
        device: cpu or cuda.
    Raises: ResourceError, saying how much is needed, how much there is, and what would fit.
    """
    memory = _memory(device)
    weights = _weight_bytes(config, model)

    def fits(one: BackboneConfig) -> bool:
        return _weight_bytes(config, one) + _hidden_bytes(config, one) <= memory

    a_segment = _hidden_bytes(config, model)
    if weights > memory:
        raise ResourceError(
            f"A model of {_parameters(model):,} parameters takes {size(weights)} in training (weights, gradients, "
            f"moments of {config.optimizer.name}), and {device} has {size(memory)}, enough for "
            f"{memory // _each(config):,} parameters: {_smaller(model, fits)}."
        )
    if not fits(model):
        remembered = _remembered_bytes(config, model)
        of_layers = f", {size(remembered)} of it what layers remember of a stream" if remembered else ""
        raise ResourceError(
            f"A segment of {config.segment_length:,} tokens takes more than {size(a_segment)} beside the model"
            f"{of_layers}, and {device} has {size(memory)}: {_smaller(model, fits)}."
        )
    batch = min(config.batch_segments, max(1, segments))
    fitting = (memory - weights) // a_segment
    if batch > fitting:
        raise ResourceError(
            f"A batch of {batch:,} segments of {config.segment_length:,} tokens takes more than "
            f"{size(batch * a_segment)} beside the model, and {device} has {size(memory)}: "
            f"--batch-tokens {fitting * config.segment_length} fits, with --accumulate for as large updates."
        )


def training_bytes(config: TrainConfig, model: BackboneConfig, segments: int) -> int:
    """Minimum bytes of memory: weights, gradients, moments, and a batch's hidden states."""
    batch = min(config.batch_segments, max(1, segments))
    return _weight_bytes(config, model) + batch * _hidden_bytes(config, model)


def _weight_bytes(config: TrainConfig, model: BackboneConfig) -> int:
    """Bytes of the weights, and of gradients and moments of what learns."""
    weights = _parameters(model) * _each(config)
    return weights if config.lora is None else weights + learning_bytes(config) * factor_numbers(model, config.lora)


def _each(config: TrainConfig) -> int:
    """Bytes that a weight of the model takes."""
    return NUMBER if config.lora is not None else learning_bytes(config)


def learning_bytes(config: TrainConfig) -> int:
    """Bytes that a number takes which learns: itself, its gradient, its moments."""
    return NUMBER * (2 + MOMENTS[config.optimizer.name])


def factor_numbers(model: BackboneConfig, rank: int) -> int:
    """How many numbers learn beside an imported model's own."""
    from stages.models.language_model import LanguageModel
    from stages.training.low_rank import added_numbers

    return added_numbers(LanguageModel(model), rank)


def _memory(device: str) -> int:
    if device == "cuda":
        import torch

        return int(torch.cuda.get_device_properties(device).total_memory)
    return memory_bytes()


def _hidden_bytes(config: TrainConfig, model: BackboneConfig) -> int:
    """Bytes of a segment: hidden states around every layer and read-outs of memory, which gradients need; and what
    layers remember."""
    layers: int = getattr(model, "layers", 1)
    numbers = model.width * (layers + 1) + _taken_numbers(model)
    return NUMBER * config.segment_length * numbers + _remembered_bytes(config, model)


def _taken_numbers(model: BackboneConfig) -> int:
    """Numbers that all layers read from memory for one position."""
    if not isinstance(model, AttentionConfig) or not isinstance(model.attention, StreamAttentionSettings):
        return 0
    blocks = len(model.attention.layers or range(model.layers))  # no list of them: there may be very many
    return blocks * model.attention.taken_numbers(model)


def _remembered_bytes(config: TrainConfig, model: BackboneConfig) -> int:
    """Bytes of a stream's state, for a model whose layers remember more than cached positions."""
    if not remembers(model, config.segment_length):
        return 0
    return model.state_bytes(config.segment_length)


def _parameters(model: BackboneConfig) -> int:
    from stages.models.language_model import parameter_count

    try:
        return parameter_count(model)
    except RuntimeError:  # one matrix alone has more numbers than torch counts
        return 2**63


def _smaller(model: BackboneConfig, fits: Callable[[BackboneConfig], bool]) -> str:
    """Advice on a size that fits: the largest memory of layers, number of slots, or number of layers, if one does."""
    length = model.lengths.long_length
    if length and isinstance(model, AttentionConfig) and fits(_lengthened(model, 0)):
        return f"--long-length {_most(length, lambda n: fits(_lengthened(model, n)))} fits"
    if isinstance(model, AttentionConfig) and isinstance(keys := model.feed_forward, ProductKeysSettings):
        sub_keys = _most(keys.sub_keys, lambda n: fits(_with(model, "feed_forward", {"sub_keys": n})))
        if sub_keys >= keys.neighbors:
            return f"model.feed_forward.sub_keys={sub_keys} fits"
    if isinstance(model, AttentionConfig) and isinstance(ngrams := model.lookup, HashedNgramsSettings):
        slots = _most(ngrams.slots, lambda n: fits(_with(model, "lookup", {"slots": n})))
        if slots:
            return f"model.lookup.slots={slots} fits"
    if fewer := _most(getattr(model, "layers", 1), lambda n: fits(model.model_copy(update={"layers": n}))):
        return f"with these widths, model.layers={fewer} fits"
    chosen = isinstance(model, AttentionConfig) and model.feed_forward != DenseSettings()
    table = ", model.feed_forward" if chosen else ""
    return f"choose smaller sizes (model.width, model.layers, model.ffn_width{table}, the vocabulary, --segment-length)"


def _lengthened(model: AttentionConfig, length: int) -> AttentionConfig:
    return model.model_copy(update={"attention": cast(StreamAttentionSettings, model.attention).lengthened(length)})


def _with(model: AttentionConfig, place: Place, changes: dict[str, int]) -> AttentionConfig:
    """The same model with other sizes of the layer in a place."""
    return model.model_copy(update={place: getattr(model, place).model_copy(update=changes)})


def _most(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest number below `limit` that fits, where all that are smaller than one that does do, too; 0: none."""
    fewest, most = 0, limit
    while most - fewest > 1:
        middle = (fewest + most) // 2
        fewest, most = (middle, most) if fits(middle) else (fewest, middle)
    return fewest
