"""Sparse memory finetuning: which slots an update changes, beside loops, and that nothing else
changes.
"""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.examples.examples import Batch
from stages.methods.method import Update
from stages.methods.sparse_memory import SparseMemory, most_specific
from stages.train import Train
from stages.training.config import TrainConfig
from stages.training.loop import Trainer
from tests.stages.small_store import small_tokens
from tests.stages.small_tasks import bytes_of

LAYER = {"sub_keys": 12, "neighbors": 2, "heads": 2}
SMALL = {"layers": 2, "width": 16, "heads": 2, "ffn_width": 16, "dropout": 0.1}


@pytest.mark.parametrize("seed", range(5))
def test_chosen_slots_are_those_of_a_loop(seed: int) -> None:
    random = np.random.default_rng(seed)
    reads, within = random.integers(0, 4, 30), random.integers(0, 11, 30)
    scores = [c / reads.sum() * math.log(11 / (b + 1)) for c, b in zip(reads, within, strict=True)]
    ranked = sorted((one for one in range(30) if reads[one]), key=lambda one: (-scores[one], one))
    for count in (1, 6, 40):
        found = most_specific(torch.tensor(reads), torch.tensor(within), 10, count)
        assert sorted(np.flatnonzero(found.numpy()).tolist()) == sorted(ranked[:count])
    assert not most_specific(
        torch.zeros(4, dtype=torch.int64), torch.zeros(4, dtype=torch.int64), 10, 2
    ).any()


def settings(method: str, layer: str = "product-keys", **more: object) -> TrainConfig:
    model = SMALL if layer == "dense" else SMALL | {"feed_forward": {"name": layer, **LAYER}}
    small = {"model": model, "segment_length": 8, "batch_tokens": 32, "steps": 6, "seed": 1}
    return TrainConfig.model_validate(small | {"method": method} | more)


def trained(store: Store, layer: str) -> Artifact:
    tokens = small_tokens(store)
    return make(
        Train(), settings("lm", layer), {"source": tokens.reference}, store, Execution()
    ).artifact


def tuned(store: Store, init: Artifact, **memory: int) -> Artifact:
    config = settings("sparse-memory", memory={"slots": 3, "background": 4, **memory}).model_copy(
        update={"model": TrainConfig().model}
    )
    references = {"source": init.input("tokens").reference, "init_from": init.reference}
    return make(Train(), config, references, store, Execution(checkpoint_seconds=0.0)).artifact


@pytest.mark.parametrize("layer", ["product-keys", "memory-plus"])
def test_only_a_few_slots_change(store: Store, layer: str) -> None:
    init = trained(store, layer)
    before, after = (load_file(one.file("last.safetensors")) for one in (init, tuned(store, init)))
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        if name.endswith(".values"):
            changed = int((tensor != after[name]).any(1).sum())
            assert 3 <= changed <= 3 * 6  # three slots an update
        else:
            assert torch.equal(tensor, after[name]), name


def test_an_update_changes_the_slots_that_it_chose_alone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    init, steps = trained(store, "product-keys"), list[int]()
    step, read = SparseMemory.step, SparseMemory._read_background

    def watched(method: SparseMemory, update: Update) -> Tensor:
        before = {name: table.detach().clone() for name, table in method._tables.items()}
        loss = step(method, update)
        for name, table in method._tables.items():
            changed = (table != before[name]).any(1)
            assert 0 < changed.sum() <= 2 and not (changed & ~method._chosen(name)).any()
            within = method._batches_with[name]
            assert within.any() and within.max() <= 4  # of four background batches
            tokens = 32 * LAYER["heads"] * LAYER["neighbors"]
            assert method._reads[name].sum() == tokens  # reads of the batch, and none before them
        steps.append(len(steps))
        return loss

    def background(method: SparseMemory, like: Batch) -> None:
        before = {name: reads.clone() for name, reads in method._reads.items()}
        read(method, like)
        assert all(torch.equal(reads, before[name]) for name, reads in method._reads.items()), (
            "the batch's own"
        )

    monkeypatch.setattr(SparseMemory, "step", watched)
    monkeypatch.setattr(SparseMemory, "_read_background", background)
    tuned(store, init, slots=2)
    assert len(steps) == 6


def test_a_run_that_is_killed_ends_with_the_same_bytes(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tuned(store, trained(store, "product-keys"))
    other, update = Store(tmp_path / "store"), Trainer._update
    init = trained(other, "product-keys")

    def killed(trainer: Trainer) -> None:
        if trainer.progress.step == 3:
            raise KeyboardInterrupt
        update(trainer)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_update", killed)
        with pytest.raises(KeyboardInterrupt):
            tuned(other, init)
    assert bytes_of(tuned(other, init)) == bytes_of(whole)


def test_a_model_without_slots_and_one_that_is_not_trained_are_refused(store: Store) -> None:
    with pytest.raises(UsageError, match="product-keys"):
        tuned(store, trained(store, "dense"))
    with pytest.raises(UsageError, match="--init-from"):
        source = {"source": small_tokens(store).reference}
        make(Train(), settings("sparse-memory"), source, store, Execution())
