"""What reading a split with a model holds in a GPU's memory at its peak, by the shapes of a batch of windows."""

from stages.artifacts.artifact import Artifact
from stages.encoding.encode import BATCH_TOKENS
from stages.models.config import model_of
from stages.models.windows import WindowSettings

NUMBER = 4
"""Bytes of a weight, and of a representation."""


def encoding_peak(
    encoder: Artifact, windows: WindowSettings, precision: str, *, scores: bool = False, device: str = "cuda"
) -> int | None:
    """Bytes at once: weights in float32, what a forward pass holds, and keys. None where shapes do not tell.

    Args:
        scores: whether the vocabulary is scored, too.
        device: cpu or cuda, which says how large blocks of scores are.
    """
    from stages.models.forward_bytes import forward_bytes
    from stages.models.softmax_bytes import softmax_bytes

    model = model_of(encoder).reading(windows)
    model = model.model_copy(update={"vocab_size": encoder.input("tokens").metrics["vocabulary_size"]})
    batch = 1 if model.carries_state else max(1, BATCH_TOKENS // windows.context)
    length = BATCH_TOKENS if model.carries_state else windows.context
    forward = forward_bytes(model, batch, length, precision, learning=False)
    if forward is None:
        return None
    keys = 2 * NUMBER * batch * length * model.width
    scoring = softmax_bytes(model, batch * length, device, learning=False) if scores else 0
    return NUMBER * int(encoder.metrics["parameters"]) + max(forward.peak, forward.kept + keys + scoring)
