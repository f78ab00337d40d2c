"""Imported models, given back."""

import json

import pytest
import torch
from safetensors import safe_open

from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.export.export import export
from stages.export.imported import write_imported
from stages.train import Train
from stages.training.config import TrainConfig
from tests.stages.export.made import WORDS, imported, log_probs, made, reloaded, tokens_of
from tests.stages.pretrained.tiny import V, saved

transformers = pytest.importorskip("transformers")
TOKENS = torch.randint(V, (3, 16), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A store and tokens of the tiny tokenizer."""
    folder = tmp_path_factory.mktemp("text")
    saved(folder / "came", "llama")
    return tokens_of(Store(folder / "store"), folder, folder / "came")


@pytest.fixture(scope="module")
def with_bos(tmp_path_factory):
    """The same of a tokenizer that begins texts with a token of their own, and the model that it came with."""
    folder = tmp_path_factory.mktemp("with_bos")
    model = saved(folder / "came", "llama", bos=True)
    return tokens_of(Store(folder / "store"), folder, folder / "came"), folder / "came", model


def given_back(tokens, tmp_path, family, **settings):
    """A model of transformers as it came, `came`, and as it went, `out`."""
    theirs = saved(tmp_path / "came", family, **settings)
    export(imported(tokens.store, tokens, tmp_path / "came"), tmp_path / "out")
    return theirs


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma", "gemma2", "phi", "cohere", "opt", "mamba"])
def test_it_goes_out_as_it_came(text, tmp_path, family):
    theirs = given_back(text, tmp_path, family)
    with torch.no_grad():
        assert torch.equal(reloaded(tmp_path / "out", TOKENS), theirs(TOKENS).logits.log_softmax(-1).flatten(0, 1))
    came, out = (safe_open(tmp_path / name / "model.safetensors", "pt") for name in ("came", "out"))
    assert set(came.keys()) == set(out.keys())
    settings = [json.loads((tmp_path / name / "config.json").read_text()) for name in ("came", "out")]
    assert settings[0] == settings[1]


def test_what_was_trained_further_goes_out_with_its_new_weights(with_bos, tmp_path):
    tokens, came, theirs = with_bos
    model = imported(tokens.store, tokens, came)
    settings = {"steps": 2, "segment_length": 16, "batch_tokens": 32, "optimizer": {"lr": 1e-2}, "method": "trime"}
    config = TrainConfig.model_validate(settings)
    trained = made(tokens.store, Train(), config, source=tokens.reference, init_from=model.reference)
    export(trained, tmp_path / "out")
    new = reloaded(tmp_path / "out", TOKENS)
    torch.testing.assert_close(new, log_probs(trained, TOKENS), rtol=0, atol=1e-5)
    with torch.no_grad():
        assert (new - theirs(TOKENS).logits.log_softmax(-1).flatten(0, 1)).abs().max() > 1e-2
    assert "trained to read a memory (method `trime`)" in (tmp_path / "out/README.md").read_text()


def test_its_tokenizer_gives_the_same_ids(with_bos, tmp_path):
    tokens, folder, _ = with_bos
    export(imported(tokens.store, tokens, folder), tmp_path / "out")
    came, out = (transformers.AutoTokenizer.from_pretrained(path) for path in (folder, tmp_path / "out"))
    assert out(WORDS).input_ids == came(WORDS).input_ids
    assert (out.bos_token, out.eos_token) == (came.bos_token, came.eos_token) == ("<s>", "<|endoftext|>")


def test_half_precision_stays(text, tmp_path):
    saved(tmp_path / "came", "llama", tie_word_embeddings=False)
    half = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "came", dtype=torch.bfloat16)
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
    with pytest.raises(ArtifactError, match=r"transformers would make other scores .*import the model again"):
        write_imported(model, None, tmp_path / "out")
