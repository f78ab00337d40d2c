"""Runs that cannot fit are refused by arithmetic."""

import re

import pytest

from stages.errors import ResourceError
from stages.models import language_model
from stages.models.config import parse_model
from stages.models.language_model import LanguageModel, parameter_count
from stages.training import sizes as room
from stages.training.config import TrainConfig
from stages.training.sizes import require_room

CPU = "cpu"


def model(**changes):
    return parse_model({"width": 8, "heads": 2, "ffn_width": 16, **changes}).sized(30, 8)


@pytest.mark.parametrize("backbone", ["transformer", "transformer-xl"])
def test_many_layers_are_counted_without_making_them(monkeypatch, backbone):
    monkeypatch.setattr(language_model, "FEW_LAYERS", 4)
    config = model(backbone=backbone, layers=44)
    assert parameter_count(config) == sum(p.numel() for p in LanguageModel(config).parameters())


def test_layers_in_chosen_blocks_of_a_deep_model_are_counted_as_they_are():
    config = model(layers=100, feed_forward={"name": "product-keys", "layers": [64, 80]})
    assert parameter_count(config) == sum(p.numel() for p in LanguageModel(config).parameters())


TABLE = {"name": "hashed-ngrams", "slots": 2 * 10**9}


@pytest.mark.parametrize(
    "sizes",
    [
        {"layers": 10**9},
        {"layers": 1, "width": 2**16},
        {"layers": 1, "width": 2**30},
        {"layers": 1, "lookup": TABLE},
    ],
)
def test_too_large_a_model_is_refused(monkeypatch, sizes):
    monkeypatch.setattr(room, "memory_bytes", lambda: 1_000_000)
    monkeypatch.setattr(language_model, "FEW_LAYERS", 4)
    with pytest.raises(ResourceError, match=r"\b1\.0 MB"):
        require_room(TrainConfig(segment_length=8), model(**sizes), 10, CPU)
    require_room(TrainConfig(segment_length=8), model(layers=1), 1, CPU)


def test_tables_on_the_host_take_none_of_the_device(monkeypatch):
    monkeypatch.setattr(room, "memory_bytes", lambda: 1 << 30)
    monkeypatch.setattr(room, "_memory", lambda device: 1_000_000)
    there, here = (
        model(layers=1, lookup=TABLE | {"slots": 20_000, "on_host": chosen})
        for chosen in (False, True)
    )
    with pytest.raises(ResourceError, match=r"\b1\.0 MB"):
        require_room(TrainConfig(segment_length=8), there, 1, "cuda")
    require_room(TrainConfig(segment_length=8), here, 1, "cuda")
    monkeypatch.setattr(room, "memory_bytes", lambda: 1_000_000)
    with pytest.raises(ResourceError, match=r"31\.\d MB.*\b1\.0 MB.*model\.lookup\.slots"):
        require_room(TrainConfig(segment_length=8), here, 1, "cuda")


def test_too_large_a_batch_is_refused_with_one_that_fits(monkeypatch):
    monkeypatch.setattr(room, "memory_bytes", lambda: 1_000_000)
    wanted = TrainConfig(segment_length=8, batch_tokens=8 * 10**6)
    require_room(wanted, model(), 10, CPU)  # of ten segments a batch has no more
    with pytest.raises(ResourceError, match=r"1,000,000 .*\b8\b") as refused:
        require_room(wanted, model(), 10**9, CPU)
    (fitting,) = re.findall(r"--batch-tokens (\d+) fits", str(refused.value))
    require_room(wanted.model_copy(update={"batch_tokens": int(fitting)}), model(), 10**9, CPU)


def test_what_layers_remember_counts_for_each_stream_of_a_batch(monkeypatch):
    attention = {"name": "memorizing", "layers": [1], "long_length": 1 << 20}
    sizes = {
        "backbone": "transformer-xl",
        "width": 64,
        "heads": 4,
        "layers": 1,
        "attention": attention,
    }
    config = TrainConfig.model_validate(
        {"model": sizes, "segment_length": 16, "batch_tokens": 16 * 64}
    )
    monkeypatch.setattr(room, "memory_bytes", lambda: 4 << 30)
    with pytest.raises(ResourceError, match=r"\b64\b.*--batch-tokens 112\b"):
        require_room(config, config.model.sized(50, 16), 1000, CPU)


@pytest.mark.parametrize("name", ["memorizing", "compressive"])
def test_a_memory_that_no_batch_can_hold_is_refused(monkeypatch, name):
    sizes = {"backbone": "transformer-xl", "width": 64, "heads": 4, "layers": 1}
    config = TrainConfig(segment_length=16, batch_tokens=16)
    monkeypatch.setattr(room, "memory_bytes", lambda: 64 << 20)

    def wanted(length):
        return parse_model(sizes | {"attention": {"name": name, "long_length": length}}).sized(
            50, 16
        )

    with pytest.raises(ResourceError, match=r"\b16\b.*GB"):
        require_room(config, wanted(10**9), 1000, CPU)
    require_room(config, wanted(1024), 1000, CPU)


def test_too_many_slots_are_refused(monkeypatch):
    monkeypatch.setattr(room, "memory_bytes", lambda: 10**9)
    config = TrainConfig(segment_length=8)

    def wanted(sub_keys):
        return model(
            layers=2, feed_forward={"name": "product-keys", "layers": [1], "sub_keys": sub_keys}
        )

    with pytest.raises(ResourceError, match=r"model\.feed_forward"):
        require_room(config, wanted(10**5), 10, CPU)
    require_room(config, wanted(64), 1, CPU)


def test_what_positions_take_from_memory_counts_for_each_block_that_does():
    def needed(layers, neighbors):
        attention = {
            "name": "memorizing",
            "layers": layers,
            "long_length": 64,
            "neighbors": neighbors,
        }
        sizes = {
            "backbone": "transformer-xl",
            "width": 8,
            "heads": 2,
            "layers": 3,
            "attention": attention,
        }
        config = TrainConfig.model_validate(
            {"model": sizes, "segment_length": 16, "batch_tokens": 32}
        )
        return room.training_bytes(config, config.model.sized(50, 16), 10)

    rows, heads, length, d_head = 2, 2, 16, 4
    one = rows * heads * length * d_head * 2 * 4  # keys and values in float32
    assert needed([1], 30) - needed([1], 10) == 20 * one
    assert needed([1, 3], 30) - needed([1, 3], 10) == 2 * 20 * one
    assert needed([1], 64) == needed([1], 100)


def test_a_signal_counts_for_each_stream_however_long_it_is():
    def needed(basis):
        attention = {"name": "infinity", "basis": basis}
        sizes = {
            "backbone": "transformer-xl",
            "width": 8,
            "heads": 2,
            "layers": 1,
            "attention": attention,
        }
        config = TrainConfig.model_validate(
            {"model": sizes, "segment_length": 16, "batch_tokens": 32}
        )
        return room.training_bytes(config, config.model.sized(50, 16), 10)

    weights, signal, attention = (
        2 * 4,
        2 * 8,
        2 * 2 * 16,
    )  # of a function; with gradients and moments, of two rows
    assert needed(60) - needed(20) == 40 * (weights + signal + attention) * 4
