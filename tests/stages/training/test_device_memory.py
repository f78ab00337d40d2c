"""What training is foretold to hold, against what it does hold on the CPU, tensor by tensor."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipelines.costs import GPU_FACTOR
from stages.memory.in_batch.blocks import SQUARE_AT_ONCE
from stages.methods import METHODS
from stages.methods.config import Batches
from stages.methods.method import SideInputs
from stages.models.language_model import LanguageModel
from stages.models.tensor_bytes import TensorBytes
from stages.reporting import Silent
from stages.training.config import TrainConfig
from stages.training.device_memory import CELL_BYTES, memory_bytes, training_peak
from stages.training.loop import Trainer
from stages.training.progress import Splits
from stages.training.ranks import make_fabric

SEGMENTS = 32
TRANSFORMER = {"layers": 3, "width": 64, "heads": 4, "ffn_width": 256}
CASES: dict[str, dict[str, Any]] = {
    "transformer": {"model": TRANSFORMER},
    "bf16": {"model": TRANSFORMER, "precision": "bf16"},
    "dropout": {"model": TRANSFORMER | {"dropout": 0.1}},
    "untied": {"model": TRANSFORMER | {"tied": False}, "optimizer": {"name": "sgd"}},
    "adaptive": {"model": TRANSFORMER | {"cutoffs": [500, 2000]}},
    "accumulated": {"model": TRANSFORMER, "accumulate": 2},
    "transformer-xl": {"model": TRANSFORMER | {"backbone": "transformer-xl", "memory_length": 64}},
    "lstm": {"model": {"backbone": "lstm", "layers": 2, "width": 64}},
    "trime": {"model": TRANSFORMER, "method": "trime"},
}


def settings(vocabulary: int = 4000, **changes: Any) -> TrainConfig:
    common = {"steps": 3, "segment_length": 64, "batch_tokens": 512, "precision": "fp32"}
    config = TrainConfig(**common | changes)
    sized = config.model_copy(update={"model": config.model.sized(vocabulary, config.segment_length)})
    if sized.memory is None:
        return sized
    memory = sized.memory.sized(sized.model, Batches(sized.batch_segments)).model_copy(update={"warmup": 0.0})
    return sized.model_copy(update={"memory": memory})


def measured(config: TrainConfig, folder: Path) -> int:
    """Bytes of tensors at once, in three updates on the CPU."""
    size = config.model.vocab_size or 0
    ids = np.random.default_rng(0).integers(size, size=SEGMENTS * config.segment_length)
    method = METHODS.load(config.method)(config.method_settings, SideInputs())
    with TensorBytes() as counted:
        model, splits = LanguageModel(config.model), Splits(ids, None, 0)
        fabric = make_fabric(torch.device("cpu"))
        Trainer(fabric, config, model, method, splits, folder, Silent(), 3600.0).run()
    return counted.peak


@pytest.mark.parametrize("case", CASES)
def test_what_is_foretold_is_what_is_held(case: str, tmp_path: Path) -> None:
    config = settings(**CASES[case])
    foretold = training_peak(config, SEGMENTS, "cpu")
    assert foretold is not None
    held = measured(config, tmp_path)

    assert 1 / GPU_FACTOR <= foretold / held <= GPU_FACTOR, (foretold, held)


def test_by_hand_where_activations_are_all_there_is() -> None:
    """Many positions of a narrow model: weights, gradients and moments are little beside a layer's 17 widths."""
    config = settings(300, batch_tokens=64 * 512, model=TRANSFORMER | {"dropout": 0.0})
    foretold = training_peak(config, 1_000)
    by_hand = 4 * 64 * 512 * 64 * (17 * 3 + 5) + 2 * 4 * 64 * 512 * 300
    assert foretold == pytest.approx(by_hand, rel=0.05)


def test_a_batch_is_no_larger_than_the_text() -> None:
    config = settings()
    assert (training_peak(config, 2) or 0) < (training_peak(config, 8) or 0) == training_peak(config, 800)


def test_memory_of_the_batch_is_a_block_of_cells_and_keys_with_gradients() -> None:
    config = settings(model=TRANSFORMER, method="trime")
    assert memory_bytes(config, 512, "cuda") == CELL_BYTES * 512**2 + 2 * 4 * 512 * 64
    side = SQUARE_AT_ONCE["cuda"]
    assert memory_bytes(config, 10**5, "cuda") == CELL_BYTES * side**2 + 2 * 4 * 10**5 * 64


def test_a_gate_reads_each_neighbour_and_embeds_each_type_once() -> None:
    model = TRANSFORMER | {"backbone": "transformer-xl"}
    config = settings(1_000, model=model, method="spalm", memory={"k": 4})
    assert memory_bytes(config, 512, "cuda") == 512 * 4 * 12 + 3 * 4 * 1_000 * 64 + 2 * 4 * 512 * 4 * 64
