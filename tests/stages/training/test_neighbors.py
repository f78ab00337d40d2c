"""Neighbours from the artifact into training: what is mapped, and what batches and validations read
of it.
"""

import numpy as np
import pytest
import torch

from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.index import BuildIndex, IndexConfig
from stages.methods.spalm import Spalm
from stages.models.language_model import LanguageModel
from stages.neighbors import NeighborsConfig, PrecomputeNeighbors
from stages.train import Train
from stages.training import training_data as mapped
from stages.training.config import TrainConfig
from stages.training.training_data import map_neighbors
from tests.stages.small_store import array, small_model, small_tokens

LENGTHS = {"train": 20, "valid": 13}
STORED, L = 22, 4
"""More neighbours than there are rows, so that the last are missing."""


@pytest.fixture(scope="module")
def neighbors(store):
    tokens = small_tokens(store, lengths=LENGTHS)
    datastore = made(
        store, BuildDatastore(), DatastoreConfig(key="hidden"), small_model(store, tokens)
    )
    index = made(store, BuildIndex(), IndexConfig(metric="ip"), datastore)
    return made(store, PrecomputeNeighbors(), NeighborsConfig(k=STORED), index)


def made(store, stage, config, source):
    return make(
        stage, config, {"source": source.reference}, store, Execution(device="cpu")
    ).artifact


def stored_tokens(neighbors, split, k):
    """values[ids[:, :k]], a row at a time; -1 where there is none."""
    ids = array(neighbors, "neighbors.zarr", f"{split}/ids")
    values = array(neighbors.find("datastore"), "datastore.zarr", "values")
    return np.array(
        [[values[row] if row >= 0 else -1 for row in rows[:k]] for rows in ids.tolist()]
    )


@pytest.mark.parametrize("k", [1, 3, STORED - 1])
def test_mapped_are_the_values_of_the_best_rows(neighbors, tmp_path, monkeypatch, k):
    monkeypatch.setattr(mapped, "ROWS", 6)
    arrays = map_neighbors(neighbors, LENGTHS, k, tmp_path)
    assert list(arrays) == list(LENGTHS)
    for split, length in LENGTHS.items():
        expected = stored_tokens(neighbors, split, k)
        assert arrays[split].shape == (length, k)
        assert arrays[split].dtype == np.int32
        assert np.array_equal(arrays[split], expected)
        assert (expected < 0).any() == (k > LENGTHS["train"])


def test_values_of_the_datastore_are_read_once_and_not_kept(neighbors, tmp_path, monkeypatch):
    first = map_neighbors(neighbors, LENGTHS, 3, tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {
        f"neighbors-{split}.npy{end}" for split in ("train", "valid") for end in ("", ".blake2b")
    }
    monkeypatch.setattr(mapped, "_write", lambda *_: pytest.fail("nothing is to be made"))
    again = map_neighbors(neighbors, LENGTHS, 3, tmp_path)
    assert all(np.array_equal(first[split], again[split]) for split in LENGTHS)


@pytest.mark.parametrize("missing", ["neighbors-valid.npy", None])
def test_a_run_that_was_killed_while_they_were_made_goes_on(neighbors, tmp_path, missing):
    map_neighbors(neighbors, LENGTHS, 3, tmp_path)
    np.save(tmp_path / "values.npy", array(neighbors.find("datastore"), "datastore.zarr", "values"))
    if missing:
        (tmp_path / missing).unlink()
    arrays = map_neighbors(neighbors, LENGTHS, 3, tmp_path)
    assert np.array_equal(arrays["valid"], stored_tokens(neighbors, "valid", 3))
    assert not (tmp_path / "values.npy").exists()


def test_a_run_reads_what_is_stored(store, neighbors, monkeypatch):
    """Batches the neighbours of train at their own places, each validation those of valid from
    first to last.
    """
    batches, validated = [], []
    batch, gated = Spalm.batch, LanguageModel.gated

    def spy_batch(method, split, segments, index):
        formed = batch(method, split, segments, index)
        batches.append((segments[:, None] * L + np.arange(L), formed.neighbor_tokens.numpy()))
        return formed

    def spy_gated(model, hidden, tokens):
        if not torch.is_grad_enabled():
            validated.append(tokens.numpy())
        return gated(model, hidden, tokens)

    monkeypatch.setattr(Spalm, "batch", spy_batch)
    monkeypatch.setattr(LanguageModel, "gated", spy_gated)
    settings = {
        "method": "spalm",
        "memory": {"k": STORED - 1},
        "model": {"layers": 1, "width": 8, "heads": 2, "ffn_width": 16},
        "segment_length": L,
        "batch_tokens": 2 * L,
        "steps": 4,
        "precision": "fp32",
    }
    made(store, Train(), TrainConfig.model_validate(settings), neighbors)
    train, valid = (stored_tokens(neighbors, split, STORED - 1) for split in LENGTHS)
    assert len(batches) == 4
    assert all(np.array_equal(tokens, train[places]) for places, tokens in batches)
    assert np.array_equal(np.concatenate(validated), valid)
