"""Neighbours searched for while a text is read are those that a stage stores of it."""

from pathlib import Path

import numpy as np
import pytest
import torch

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.encoding.encode import SplitReader
from stages.encoding.key_encoder import KeyEncoder
from stages.examples.cutting import WindowSettings
from stages.examples.examples import Corpus
from stages.index import BuildIndex, IndexConfig
from stages.neighbors import NeighborsConfig, PrecomputeNeighbors
from stages.retrieval.gate_reader import SearchedNeighbors
from tests.stages.small_store import EOS, VOCABULARY, array, small_model, small_tokens

K = 3
LSTM = {"backbone": "lstm", "vocab_size": VOCABULARY, "layers": 1, "width": 8, "dropout": 0.0}
PLAIN, ROUGH = {"index": "flat"}, {"index": "ivf-pq", "lists": 4, "code_bits": 4, "code_bytes": 1}


def stored(folder: Path, model: dict | None, index: dict, **settings) -> Artifact:
    """A neighbors artifact of a split that its datastore does not hold."""
    store = Store(folder)
    tokens = small_tokens(store, lengths={"train": 200, "valid": 60})
    artifact = (
        small_model(store, tokens) if model is None else small_model(store, tokens, model=model)
    )
    for stage, config in (
        (BuildDatastore(), DatastoreConfig()),
        (BuildIndex(), IndexConfig(**index)),
        (PrecomputeNeighbors(), NeighborsConfig(k=K, queries=("valid",), **settings)),
    ):
        artifact = make(
            stage, config, {"source": artifact.reference}, store, Execution("cpu")
        ).artifact
    return artifact


def searched(neighbors: Artifact, k: int = K) -> SearchedNeighbors:
    """The same text, as one that nothing is stored of; its reader has windows of its own."""
    group = neighbors.input("queries").zarr("tokens.zarr")
    reader = SplitReader(
        Corpus(group, EOS), WindowSettings(3, 3), True, torch.device("cpu"), "fp32"
    )
    return SearchedNeighbors(neighbors, reader, k)


@pytest.mark.parametrize("settings", [{}, {"exact": True, "candidates": 20}, {"probe": 1}])
@pytest.mark.parametrize("model", [None, LSTM])
def test_they_are_what_the_stage_found(tmp_path, model, settings):
    neighbors = stored(tmp_path, model, ROUGH, **settings)
    want, found = array(neighbors, "neighbors.zarr", "valid/ids"), searched(neighbors)
    parts = [found.find("valid", start, start + 20) for start in (0, 20, 40)]
    np.testing.assert_array_equal(np.concatenate(parts), want)
    assert searched(neighbors, k=0).find("valid", 0, 20).shape == (20, 0)


@pytest.mark.parametrize("model", [None, LSTM])
def test_in_whatever_order_ranges_are_asked_for_they_are_the_same(tmp_path, model):
    neighbors = stored(tmp_path, model, PLAIN)
    want = array(neighbors, "neighbors.zarr", "valid/ids")
    for k in (1, K):
        found = searched(neighbors, k)
        for start, stop in ((50, 60), (10, 30), (40, 45), (0, 60)):
            np.testing.assert_array_equal(found.find("valid", start, stop), want[start:stop, :k])


def test_a_state_of_one_split_is_none_of_another(tmp_path):
    """A split goes on from its own last tokens, not from those that were read between."""
    neighbors = stored(tmp_path, LSTM, PLAIN)
    want, found = searched(neighbors).find("valid", 0, 60), searched(neighbors)
    np.testing.assert_array_equal(found.find("valid", 0, 20), want[:20])
    found.find("train", 0, 20)
    np.testing.assert_array_equal(found.find("valid", 20, 60), want[20:])


def test_a_stream_is_read_on_from_where_it_was_left_and_the_last_range_is_not_searched_again(
    tmp_path, monkeypatch
):
    found = searched(stored(tmp_path, LSTM, PLAIN))
    read, past, encode = [], KeyEncoder.state_past, KeyEncoder.encode

    def state_past(self, split, stop, state=None, start=0):
        read.append((start, stop))
        return past(self, split, stop, state, start)

    def encoded(self, split, start, stop, state):
        read.append((start, stop))
        return encode(self, split, start, stop, state)

    monkeypatch.setattr(KeyEncoder, "state_past", state_past)
    monkeypatch.setattr(KeyEncoder, "encode", encoded)
    first = found.find("valid", 10, 20)
    assert found.find("valid", 10, 20) is first
    found.find("valid", 30, 40), found.find("valid", 5, 10)
    assert read == [(0, 10), (10, 20), (20, 30), (30, 40), (0, 5), (5, 10)]
