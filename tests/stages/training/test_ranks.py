"""Several processes make the model that one would make."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.methods import trime_ext
from stages.methods.trime_ext import TrimeExt
from stages.train import Train
from stages.training.config import TrainConfig
from stages.training.ranks import gather_over_ranks, make_fabric, mean_over_ranks
from tests.stages.small_store import small_tokens
from tests.stages.training import two_ranks

ROOT = Path(__file__).parents[3]


def test_one_process_alone_is_the_mean_of_itself():
    fabric = make_fabric(torch.device("cpu"))
    assert mean_over_ranks(fabric, 3.5) == 3.5
    assert gather_over_ranks(fabric, "a") == ["a"]


def test_the_first_rank_does_not_follow(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    assert not Train().follow(TrainConfig(), None, Execution())


def half_by_half(loss, monkeypatch):
    """The mean loss of both halves of a batch, each with keys of the other that get no gradient."""

    def of_batch(method, model, batch, state):
        size = len(batch.inputs) // 2
        losses = []
        for own, other in ((slice(size), slice(size, None)), (slice(size, None), slice(size))):
            half = replace(batch, inputs=batch.inputs[own], targets=batch.targets[own])
            with torch.no_grad():
                keys = model.encode(batch.inputs[other]).key(method.key(model)).flatten(0, 1)
            values = batch.targets[other].flatten()
            beside = {True: keys, False: values}
            monkeypatch.setattr(
                trime_ext, "with_other_ranks", lambda t, beside=beside: torch.cat((t, beside[t.is_floating_point()]))
            )
            losses.append(loss(method, model, half, state)[0])
        return sum(losses) / 2, None

    return of_batch


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", two_ranks.CASES)
def test_two_ranks_train_as_one(case, tmp_path, monkeypatch):
    """Of `trime-ext` as one whose keys of the other half of a batch are constants."""
    if case == "trime-ext":
        monkeypatch.setattr(TrimeExt, "loss", half_by_half(TrimeExt.loss, monkeypatch))
    alone, together = Store(tmp_path / "alone"), Store(tmp_path / "together")
    settings = two_ranks.settings(case)
    references = {"source": small_tokens(alone).reference}
    expected = make(Train(), settings, references, alone, Execution(device="cpu")).artifact
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = [two_ranks.__file__, str(together.root), small_tokens(together).reference, case]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([*launch, *script], env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [expected.reference]
    got = together.get(expected.reference)
    assert got.metrics["valid_loss"] == pytest.approx(expected.metrics["valid_loss"], rel=1e-4)
    for name in ("model", "last"):
        weights, wanted = (load_file(a.path / f"{name}.safetensors") for a in (got, expected))
        torch.testing.assert_close(weights, wanted, rtol=1e-3, atol=1e-4)
