"""Several processes make the model that one would make."""

import json
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
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.index import BuildIndex, IndexConfig
from stages.methods import trime
from stages.methods.method import Loss
from stages.methods.trime import TrimeExt
from stages.neighbors import NeighborsConfig, PrecomputeNeighbors
from stages.train import Train
from stages.training import validate
from stages.training.config import TrainConfig
from stages.training.ranks import gather_over_ranks, make_fabric, mean_over_ranks
from stages.training.work import TrainWork
from tests.stages.small_store import small_model, small_tokens
from tests.stages.training import two_ranks

ROOT = Path(__file__).parents[3]


def test_one_process_alone_is_the_mean_of_itself():
    fabric = make_fabric(torch.device("cpu"))
    assert mean_over_ranks(fabric, 3.5) == 3.5
    assert gather_over_ranks(fabric, "a") == ["a"]


def test_the_first_rank_does_not_follow(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    assert not TrainWork().follow(TrainConfig(), None, Execution())


def half_by_half(loss, monkeypatch):
    """The mean loss of both halves of a batch, each with keys of the other that get no gradient."""

    def of_batch(method, model, batch, carried):
        size = len(batch.inputs) // 2
        losses = []
        for own, other in ((slice(size), slice(size, None)), (slice(size, None), slice(size))):
            half = replace(
                batch, inputs=batch.inputs[own], targets=batch.targets[own], local=batch.local[own]
            )
            with torch.no_grad():
                keys = model.encode(batch.inputs[other]).key(method.settings.key).flatten(0, 1)
            values = batch.targets[other].flatten()
            beside = {True: keys, False: values}
            monkeypatch.setattr(
                trime,
                "with_other_ranks",
                lambda t, beside=beside: torch.cat((t, beside[t.is_floating_point()])),
            )
            losses.append(loss(method, model, half, carried)[0])
        return Loss(sum(losses) / 2, carried)

    return of_batch


def learnt_from(store, settings):
    """What a training reads, by role: tokens or their neighbours, and a model where the gate alone
    is learnt.
    """
    tokens = small_tokens(
        store, lengths={"train": 170, "valid": 40, "test": 35}
    )  # five batches an epoch
    begun = settings.model_copy(update={"method": "lm", "memory": None, "steps": 2})
    if settings.method_settings.indirect_inputs:
        return {"source": tokens, "init_from": made(store, Train(), begun, source=tokens)}
    if not settings.method_settings.neighbors_read:
        return {"source": tokens}
    datastore = made(
        store, BuildDatastore(), DatastoreConfig(key="hidden"), source=small_model(store, tokens)
    )
    index = made(store, BuildIndex(), IndexConfig(metric="ip"), source=datastore)
    neighbors = made(store, PrecomputeNeighbors(), NeighborsConfig(k=3), source=index)
    if not settings.memory.continues:
        return {"source": neighbors}
    return {"source": neighbors, "init_from": made(store, Train(), begun, source=tokens)}


def made(store, stage, config, **references):
    given = {role: artifact.reference for role, artifact in references.items()}
    return make(stage, config, given, store, Execution(device="cpu")).artifact


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("alone"))


STOPPED = "lm of memorizing attention"
FRESH = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Ranks that are started again do not look for those before."""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What two ranks say of the training of each case in a store, and of one that is stopped, in a
    store of its own.
    """
    stores = [Store(tmp_path_factory.mktemp("together"))] * len(two_ranks.CASES)
    cases = zip(
        [*two_ranks.CASES, STOPPED], [*stores, Store(tmp_path_factory.mktemp("parts"))], strict=True
    )
    runs = []
    for case, store in cases:
        learnt = learnt_from(store, two_ranks.settings(case))
        runs.append(
            [case, str(store.root), {role: artifact.reference for role, artifact in learnt.items()}]
        )
    done = subprocess.run(
        [sys.executable, two_ranks.__file__, json.dumps(runs)],
        env=os.environ
        | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        | FRESH,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    found, *references = done.stdout.splitlines()[-1 - len(runs) :]
    made = [
        Store(Path(store)).get(one) for (_, store, _), one in zip(runs, references, strict=True)
    ]
    return found, dict(zip(two_ranks.CASES, made[:-1], strict=True)), made[-1]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", two_ranks.CASES)
def test_two_ranks_train_as_one(case, alone, said, monkeypatch):
    """Of `trime-ext` as one whose keys of the other half of a batch are constants."""
    if case == "trime-ext":
        monkeypatch.setattr(TrimeExt, "loss", half_by_half(TrimeExt.loss, monkeypatch))
    monkeypatch.setattr(validate, "READ_TOGETHER", two_ranks.VALIDATED)
    settings, got = two_ranks.settings(case), said[1][case]
    expected = made(alone, Train(), settings, **learnt_from(alone, settings))
    assert got.reference == expected.reference
    assert got.metrics["valid_loss"] == pytest.approx(expected.metrics["valid_loss"], rel=1e-4)
    for name in ("model", "last"):
        weights, wanted = (load_file(a.path / f"{name}.safetensors") for a in (got, expected))
        torch.testing.assert_close(weights, wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.timeout(300)
def test_two_ranks_that_end_at_once_go_on_with_what_each_remembered(said):
    found, whole, parts = said
    assert found == str(two_ranks.STOPPED)
    last = [artifact.path / "last.safetensors" for artifact in (whole[STOPPED], parts)]
    assert last[0].read_bytes() == last[1].read_bytes()
