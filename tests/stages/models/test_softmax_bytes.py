"""What scoring a vocabulary holds, by hand."""

from stages.models.cross_entropy import BLOCK_SCORES
from stages.models.softmax_bytes import softmax_bytes
from stages.training.config import TrainConfig

D = 64


def model(vocabulary: int, **changes: object):  # type: ignore[no-untyped-def]
    settings = {"layers": 1, "width": D, "heads": 2, "ffn_width": D} | changes
    return TrainConfig(model=settings).model.sized(vocabulary, 32)


def test_a_full_vocabulary() -> None:
    few, vocabulary = 100, 5_000
    scores, hidden, weights = 2 * 4 * few * vocabulary, 4 * few * D, 4 * vocabulary * D
    assert softmax_bytes(model(vocabulary), few, "cuda", learning=False) == scores + hidden
    assert softmax_bytes(model(vocabulary), few, "cuda", learning=True) == scores + 2 * hidden + 2 * weights


def test_blocks_are_as_large_as_the_device_lets_them_be() -> None:
    many, vocabulary = 10**6, 1 << 12
    for device in ("cpu", "cuda"):
        taken = softmax_bytes(model(vocabulary), many, device, learning=False)
        assert taken == 2 * 4 * BLOCK_SCORES[device] + 4 * many * D


def test_adaptive_clusters_are_narrower_and_scored_one_by_one() -> None:
    """Cutoffs 1,000 and 4,000 of 9,000: a head of 1,000 words and 2 entries, 3,000 at d/4, 5,000 at d/16."""
    found = softmax_bytes(model(9_000, cutoffs=[1_000, 4_000], factor=4), 100, "cuda", learning=True)
    weights = 1_002 * D + 3_000 * D // 4 + 5_000 * D // 16
    assert found == 4 * (2 * 100 * 5_000 + 2 * weights + 2 * 100 * D)
