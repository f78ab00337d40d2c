"""What training holds in a GPU's memory at its peak, by arithmetic and the shapes of a batch."""

from stages.memory.in_batch.blocks import SQUARE_AT_ONCE
from stages.methods.in_batch_config import InBatchConfig
from stages.models.forward_bytes import NUMBER, forward_bytes
from stages.models.gate import BLOCK_ELEMENTS
from stages.models.language_model import parameter_count
from stages.models.softmax_bytes import softmax_bytes
from stages.training.config import TrainConfig
from stages.training.room import MOMENTS, factor_numbers

CELL_BYTES = 12
"""Of a cell of in-batch memory, at the most (`stages.memory.in_batch.log_sums`)."""
NEIGHBOR_BYTES = 8 + 4
"""Of a neighbour that a gate reads: which embedding is its own, and its weight."""


def training_peak(config: TrainConfig, segments: int, device: str = "cuda") -> int | None:
    """Bytes at once: weights and moments, with what is larger of a batch (activations, scores, memory) and of an
    update (gradients). None where shapes do not tell.

    Args:
        config: resolved.
        segments: whole segments of the training split; a batch has no more.
        device: cpu or cuda, which says how large blocks of scores are.
    """
    batch, model = min(config.batch_segments, max(1, segments)), config.model
    forward = forward_bytes(model, batch, config.segment_length, config.precision, learning=True)
    if forward is None:
        return None
    parameters, tokens = parameter_count(model), batch * config.segment_length
    learnt = parameters if config.lora is None else factor_numbers(model, config.lora)
    stays = NUMBER * (parameters + (0 if config.lora is None else learnt) + MOMENTS[config.optimizer.name] * learnt)
    gradients = NUMBER * learnt
    loss = softmax_bytes(model, tokens, device, learning=config.lora is None) + memory_bytes(config, tokens, device)
    of_batch = max(forward.peak, forward.kept + loss) + (gradients if config.accumulate > 1 else 0)
    return stays + max(of_batch, gradients)


def memory_bytes(config: TrainConfig, tokens: int, device: str) -> int:
    """What a method reads beside the model: a block of cells, keys with their gradients, or neighbours' embeddings.

    Args:
        tokens: of a batch.
    """
    width, gate = config.model.width, 0
    if isinstance(config.memory, InBatchConfig):
        side = min(tokens, SQUARE_AT_ONCE[device])
        past = (getattr(config.memory, "consecutive", None) or 1) - 1 if config.model.carries_state else 0
        return CELL_BYTES * side * side + (2 + past) * NUMBER * tokens * width
    if read := config.method_settings.neighbors_read:
        types = min(tokens * read, config.model.vocab_size or tokens * read)
        gate = tokens * read * NEIGHBOR_BYTES + 3 * NUMBER * types * width
        gate += 2 * NUMBER * min(BLOCK_ELEMENTS[device], tokens * read * width)
    return gate
