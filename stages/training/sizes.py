"""Bytes of the files that training writes, by arithmetic: weights, checkpoints, carried states."""

from stages.artifacts.artifact import Artifact
from stages.artifacts.stage import Inputs
from stages.examples import DOCUMENTS
from stages.methods.config import TRAIN
from stages.training.config import TrainConfig
from stages.training.room import NUMBER, factor_numbers

MOST_MOMENTS = 2
"""Optimizer moments that a checkpoint holds for each number that learns."""


def saved_bytes(config: TrainConfig) -> tuple[int, int]:
    """Bytes of a file of weights, and how many numbers of it are learnt."""
    import torch

    from stages.models.language_model import LanguageModel

    with torch.device("meta"):
        model = LanguageModel(config.model)
        held = {id(tensor): tensor for tensor in model.state_dict(keep_vars=True).values()}
        learnt = sum(parameter.numel() for parameter in model.parameters())
    return sum(tensor.numel() * tensor.element_size() for tensor in held.values()), learnt


def checkpoint_bytes(config: TrainConfig, inputs: Inputs, weight_bytes: int) -> int:
    """All weights, the moments of those that learn, and what the streams of a batch carry to the next."""
    carried = _carried_bytes(config, inputs)
    if config.lora is None:
        return (1 + MOST_MOMENTS) * weight_bytes + carried
    return weight_bytes + (1 + MOST_MOMENTS) * NUMBER * factor_numbers(config.model, config.lora) + carried


def _carried_bytes(config: TrainConfig, inputs: Inputs) -> int:
    """Bytes of the states of a batch's streams."""
    if not config.model.carries_state:
        return 0
    batch = min(config.batch_segments, max(1, segments(config, inputs["tokens"])))
    return batch * config.model.state_bytes(config.segment_length)


def segments(config: TrainConfig, tokens: Artifact) -> int:
    """Examples of the training split: its documents, where these are examples, or its whole segments."""
    split = tokens.metrics["splits"][TRAIN]
    if tokens.metrics.get("examples") == DOCUMENTS:
        return int(split["documents"])
    return int(split["tokens"]) // config.segment_length


def epoch_batches(config: TrainConfig, tokens: Artifact) -> int:
    """Whole forward batches of one pass; where tasks are learnt one after the other, a batch is of one of them."""
    split = tokens.metrics["splits"][TRAIN]
    counts = [segments(config, tokens)] if config.order is None else split["task_documents"]
    size = min(config.batch_segments, min(counts))
    return sum(count // max(1, size) for count in counts)


def update_tokens(config: TrainConfig, inputs: Inputs) -> int:
    """Tokens that one update reads."""
    batch = min(config.batch_segments, max(1, segments(config, inputs["tokens"])))
    return batch * config.segment_length * config.accumulate
