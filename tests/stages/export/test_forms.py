"""Exported models, read back by transformers: Transformers made here, and imported models given
back.
"""

import json

import pytest
import torch
from safetensors import safe_open

from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.export.export import export
from stages.export.forms import write_imported
from stages.models.layers import FEED_FORWARD
from stages.registry import Part
from stages.train import Train
from stages.training.config import TrainConfig
from tests.stages.export.made import (
    WORDS,
    imported,
    log_probs,
    made,
    random_model,
    reloaded,
    tokens_of,
)
from tests.stages.pretrained.tiny import V, saved
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
    torch.testing.assert_close(
        reloaded(tmp_path / "out", TOKENS), log_probs(model, TOKENS), rtol=0, atol=1e-5
    )


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
        ({"gate": "vector"}, r"SPALM"),
        (
            {"feed_forward": {"name": "slots", "layers": [2]}},
            "'slots' as model.feed_forward in block 2",
        ),
        (
            {"lookup": {"name": "hashed-ngrams", "slots": 9}},
            "'hashed-ngrams' as model.lookup in block 1",
        ),
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


transformers = pytest.importorskip("transformers")
IDS = torch.randint(V, (3, 16), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A store and tokens of the tiny tokenizer."""
    folder = tmp_path_factory.mktemp("text")
    saved(folder / "came", "llama")
    return tokens_of(Store(folder / "store"), folder, folder / "came")


@pytest.fixture(scope="module")
def with_bos(tmp_path_factory):
    """The same of a tokenizer that begins texts with a token of their own, and the model that it
    came with.
    """
    folder = tmp_path_factory.mktemp("with_bos")
    model = saved(folder / "came", "llama", bos=True)
    return tokens_of(Store(folder / "store"), folder, folder / "came"), folder / "came", model


def given_back(tokens, tmp_path, family, **settings):
    """A model of transformers as it came, `came`, and as it went, `out`."""
    theirs = saved(tmp_path / "came", family, **settings)
    export(imported(tokens.store, tokens, tmp_path / "came"), tmp_path / "out")
    return theirs


@pytest.mark.parametrize(
    "family", ["llama", "gpt2", "gemma", "gemma2", "phi", "cohere", "opt", "mamba"]
)
def test_it_goes_out_as_it_came(text, tmp_path, family):
    theirs = given_back(text, tmp_path, family)
    with torch.no_grad():
        assert torch.equal(
            reloaded(tmp_path / "out", IDS), theirs(IDS).logits.log_softmax(-1).flatten(0, 1)
        )
    came, out = (safe_open(tmp_path / name / "model.safetensors", "pt") for name in ("came", "out"))
    assert set(came.keys()) == set(out.keys())
    settings = [
        json.loads((tmp_path / name / "config.json").read_text()) for name in ("came", "out")
    ]
    assert settings[0] == settings[1]


def test_what_was_trained_further_goes_out_with_its_new_weights(with_bos, tmp_path):
    tokens, came, theirs = with_bos
    model = imported(tokens.store, tokens, came)
    settings = {
        "steps": 2,
        "segment_length": 16,
        "batch_tokens": 32,
        "optimizer": {"lr": 1e-2},
        "method": "trime",
    }
    config = TrainConfig.model_validate(settings)
    trained = made(
        tokens.store, Train(), config, source=tokens.reference, init_from=model.reference
    )
    export(trained, tmp_path / "out")
    new = reloaded(tmp_path / "out", IDS)
    torch.testing.assert_close(new, log_probs(trained, IDS), rtol=0, atol=1e-5)
    with torch.no_grad():
        assert (new - theirs(IDS).logits.log_softmax(-1).flatten(0, 1)).abs().max() > 1e-2
    assert "(method `trime`)" in (tmp_path / "out/README.md").read_text()


def test_its_tokenizer_gives_the_same_ids(with_bos, tmp_path):
    tokens, folder, _ = with_bos
    export(imported(tokens.store, tokens, folder), tmp_path / "out")
    came, out = (
        transformers.AutoTokenizer.from_pretrained(path) for path in (folder, tmp_path / "out")
    )
    assert out(WORDS).input_ids == came(WORDS).input_ids
    assert (
        (out.bos_token, out.eos_token)
        == (came.bos_token, came.eos_token)
        == ("<s>", "<|endoftext|>")
    )


def test_half_precision_stays(text, tmp_path):
    saved(tmp_path / "came", "llama", tie_word_embeddings=False)
    half = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "came", dtype=torch.bfloat16
    )
    half.save_pretrained(tmp_path / "came")
    export(imported(text.store, text, tmp_path / "came"), tmp_path / "out")
    came, out = (safe_open(tmp_path / name / "model.safetensors", "pt") for name in ("came", "out"))
    assert all(torch.equal(came.get_tensor(name), out.get_tensor(name)) for name in came.keys())  # noqa: SIM118


def test_positions_are_its_own(text, tmp_path):
    saved(tmp_path / "came", "llama")
    with pytest.raises(UsageError, match="leave --positions out"):
        export(imported(text.store, text, tmp_path / "came"), tmp_path / "out", 64)


def test_a_model_that_transformers_would_read_otherwise_is_refused(text, tmp_path):
    """As after a change of transformers, or of what an import makes."""
    saved(tmp_path / "came", "cohere")
    model = imported(text.store, text, tmp_path / "came")
    model.manifest.config["model"]["architecture"]["logit_scale"] = 0.5
    (tmp_path / "out").mkdir()
    with pytest.raises(
        ArtifactError, match=r"transformers would make other scores .*import the model again"
    ):
        write_imported(model, None, tmp_path / "out")
