"""What a forward pass holds, by hand."""

import pytest
import torch

from stages.models.config import BackboneConfig
from stages.models.forward_bytes import LSTM_NUMBERS, forward_bytes
from stages.training.config import TrainConfig

BATCH, LENGTH, WIDTH, HEADS, FFN = 4, 32, 64, 4, 256
POSITIONS = BATCH * LENGTH


def model(layers: int, **changes: object) -> BackboneConfig:
    settings = {"layers": layers, "width": WIDTH, "heads": HEADS, "ffn_width": FFN, "dropout": 0.0}
    return TrainConfig(model=settings | changes, segment_length=LENGTH).model.sized(100, LENGTH)


def kept_by_a_layer(precision: str) -> int:
    found = [forward_bytes(model(layers), BATCH, LENGTH, precision, learning=True) for layers in (2, 3)]
    assert found[0] is not None and found[1] is not None
    return found[1].kept - found[0].kept


STATISTICS = 2 * 2 + HEADS
"""Numbers of a position: mean and deviation of two layer norms, a log sum of each head."""


def test_a_layer_keeps_what_its_gradients_need() -> None:
    residuals, normalized, attention = 2 * WIDTH, 2 * WIDTH, (3 + 1 + 1) * WIDTH  # q, k, v; outputs, put together
    assert kept_by_a_layer("fp32") == 4 * POSITIONS * (residuals + normalized + attention + 2 * FFN + STATISTICS)


def test_in_bf16_operands_of_products_take_half_and_weights_are_there_again() -> None:
    exact = 4 * POSITIONS * (2 * WIDTH + STATISTICS)  # the residual stream
    rounded = 2 * POSITIONS * (2 * WIDTH + 5 * WIDTH + 2 * FFN)
    weights = 2 * (4 * WIDTH * WIDTH + 4 * WIDTH + 2 * WIDTH * FFN + FFN + WIDTH)
    assert kept_by_a_layer("bf16") == exact + rounded + weights


def test_without_gradients_little_is_kept() -> None:
    learning, reading = (
        forward_bytes(model(12), BATCH, LENGTH, "fp32", learning=learning) for learning in (True, False)
    )
    assert learning is not None and reading is not None
    assert reading.kept < reading.peak < learning.kept / 8
    deeper = forward_bytes(model(24), BATCH, LENGTH, "fp32", learning=False)
    assert deeper is not None and deeper.peak == reading.peak


def test_a_longer_window_takes_no_scores_of_attention() -> None:
    """Fused attention makes none: memory is in proportion to positions."""
    short, long = (
        forward_bytes(model(2, positions="sinusoidal"), 1, length, "fp32", learning=True) for length in (256, 2048)
    )
    assert short is not None and long is not None
    assert long.kept == pytest.approx(8 * short.kept, rel=0.01)


def test_a_stream_is_read_until_what_it_carries_is_as_long_as_it_gets() -> None:
    settings = {"backbone": "transformer-xl", "layers": 2, "width": WIDTH, "heads": HEADS, "ffn_width": FFN}
    made = [
        TrainConfig(model=settings | {"memory_length": length}, segment_length=LENGTH).model.sized(100, LENGTH)
        for length in (0, LENGTH)
    ]
    without, carried = (forward_bytes(one, BATCH, LENGTH, "fp32", learning=True) for one in made)
    assert without is not None and carried is not None
    assert carried.kept > 1.3 * without.kept


def test_an_lstm_is_arithmetic() -> None:
    made = [model_of_lstm(layers) for layers in (1, 2)]
    one, two = (forward_bytes(config, BATCH, LENGTH, "fp32", learning=True) for config in made)
    assert one is not None and two is not None
    assert two.kept - one.kept == 4 * LSTM_NUMBERS * POSITIONS * WIDTH


def model_of_lstm(layers: int) -> BackboneConfig:
    settings = {"backbone": "lstm", "layers": layers, "width": WIDTH}
    return TrainConfig(model=settings, segment_length=LENGTH).model.sized(100, LENGTH)


def test_nothing_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model that no machine holds."""
    huge = TrainConfig(
        model={"layers": 2, "width": 65536, "heads": 64, "ffn_width": 262144}, segment_length=LENGTH
    ).model.sized(1_000_000, LENGTH)
    found = forward_bytes(huge, 64, LENGTH, "bf16", learning=True)
    assert found is not None and found.kept > 100e9
    assert torch.get_default_device().type == "cpu"
