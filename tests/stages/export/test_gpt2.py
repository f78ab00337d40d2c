"""Transformers of memlm, read back by transformers."""

import json

import pytest
import torch

from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.export.export import export
from stages.models.layers import FEED_FORWARD
from stages.registry import Part
from tests.stages.export.made import log_probs, random_model, reloaded
from tests.stages.small_store import VOCABULARY

pytest.importorskip("transformers")
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
XL = {"width": 8, "heads": 2, "segment_length": 8, "mem_length": 6}
TOKENS = torch.randint(VOCABULARY, (3, 16), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_log_probabilities_are_those_of_memlm(store, tmp_path, tied, positions, activation):
    model = random_model(store, tied=tied, positions=positions, activation=activation)
    exported = export(model, tmp_path / "out", 16 if positions == "sinusoidal" else None)
    assert exported.form == ("GPT2LMHeadModel", 16)
    assert exported.files == [
        "README.md",
        "config.json",
        "memlm.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    torch.testing.assert_close(reloaded(tmp_path / "out", TOKENS), log_probs(model, TOKENS), rtol=0, atol=1e-5)


def test_sinusoidal_positions_are_as_many_as_a_segment_or_as_are_asked_for(store, tmp_path):
    model = random_model(store, positions="sinusoidal", max_positions=None)
    assert export(model, tmp_path / "out").form.longest == model.config["segment_length"] == 8
    assert export(model, tmp_path / "out", 64).form.longest == 64
    assert json.loads((tmp_path / "out/config.json").read_text())["n_positions"] == 64


def test_learned_positions_are_what_they_are(store, tmp_path):
    with pytest.raises(UsageError, match="has learned 16 positions: leave --positions out"):
        export(random_model(store), tmp_path / "out", 64)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cutoffs": [4], "factor": 2}, "adaptive softmax .*train one with --set 'model.cutoffs="),
        ({"score_cap": 30.0}, "scales, shifts or caps its scores"),
        ({"gate": "vector"}, r"a gate that lets neighbours' tokens in"),
        ({"feed_forward": {"name": "slots", "layers": [2]}}, "'slots' as model.feed_forward in block 2"),
        ({"lookup": {"name": "hashed-ngrams", "slots": 9}}, "'hashed-ngrams' as model.lookup in block 1"),
        ({"backbone": "transformer-xl", **XL}, "transformers has no such model"),
        ({"backbone": "lstm", "width": 8}, "transformers has no such model"),
    ],
    ids=["adaptive", "cap", "gate", "layer", "lookup", "transformer-xl", "lstm"],
)
def test_what_gpt2_has_not_is_refused(store, tmp_path, monkeypatch, settings, message):
    slots = Part("tests.test_outside_layers:SlotsSettings", "tests.test_outside_layers:Slots")
    monkeypatch.setitem(FEED_FORWARD.targets, "slots", slots)
    model = random_model(store, **settings)
    with pytest.raises(UsageError, match=message):
        export(model, tmp_path / "out")
    assert not list(tmp_path.glob("*out*"))
