"""Models of transformers, taken apart and put together again, beside themselves."""

import json
import time

import pytest
import torch
from safetensors.torch import load_file, save_file

from stages.errors import DataError
from stages.models.backbones.huggingface import HuggingFace
from stages.models.weights import load_model, save_weights
from stages.pretrained.location import locate
from stages.pretrained.model import describe, model_size, read_pretrained
from tests.stages.pretrained.tiny import (
    FAMILIES,
    D,
    V,
    imported,
    saved,
    saved_encoder,
    saved_translator,
    stored_and_loaded,
    tiny_model,
)

pytest.importorskip("transformers")


@pytest.mark.parametrize("family", FAMILIES)
def test_log_probabilities_are_those_of_transformers(tmp_path, family):
    theirs = saved(tmp_path, family)
    tokens = torch.randint(V, (3, 30), generator=torch.Generator().manual_seed(1))
    ours = imported(tmp_path)
    with torch.no_grad():
        wanted = theirs(tokens).logits.log_softmax(-1)
        encoding = ours.encode(tokens)
    torch.testing.assert_close(ours.log_probs(encoding.hidden), wanted, rtol=1e-4, atol=2e-5)
    assert (encoding.ffn_input is None) == (family in ("mamba", "mamba2", "opt"))
    if encoding.ffn_input is not None:
        assert encoding.ffn_input.shape == (3, 30, D)


def test_g_is_what_enters_the_last_feed_forward_block(tmp_path):
    theirs = saved(tmp_path, "llama")
    tokens = torch.randint(V, (2, 9), generator=torch.Generator().manual_seed(1))
    seen = []
    theirs.model.layers[-1].post_attention_layernorm.register_forward_hook(
        lambda *found: seen.append(found[2])
    )
    with torch.no_grad():
        theirs(tokens)
        torch.testing.assert_close(imported(tmp_path).encode(tokens).ffn_input, seen[0])


def test_a_prefix_stands_before_every_window_and_leaves_no_row(tmp_path):
    theirs = saved(tmp_path, "llama", bos=True)
    tokens = torch.randint(V, (2, 9), generator=torch.Generator().manual_seed(1))
    ours = imported(tmp_path, prefix=1)
    with torch.no_grad():
        wanted = theirs(torch.nn.functional.pad(tokens, (1, 0), value=1)).logits.log_softmax(-1)[
            :, 1:
        ]
        encoding = ours.encode(tokens)
    assert encoding.hidden.shape == encoding.ffn_input.shape == (2, 9, D)
    torch.testing.assert_close(ours.log_probs(encoding.hidden), wanted, rtol=1e-4, atol=1e-5)
    assert ours.config.reads.longest_context == 39


def test_a_window_that_begins_with_the_prefix_gets_no_second_one(tmp_path):
    theirs = saved(tmp_path, "llama", bos=True)
    tokens = torch.randint(2, V, (3, 9), generator=torch.Generator().manual_seed(1))
    tokens[1, 0] = 1
    ours = imported(tmp_path, prefix=1)
    with torch.no_grad():
        within = theirs(torch.nn.functional.pad(tokens, (1, 0), value=1)).logits.log_softmax(-1)[
            :, 1:
        ]
        first = theirs(tokens[1:2]).logits.log_softmax(-1)[0]
        found = ours.log_probs(ours.encode(tokens).hidden)
    torch.testing.assert_close(found[1], first, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[[0, 2]], within[[0, 2]], rtol=1e-4, atol=1e-5)


def test_weights_that_were_saved_are_loaded_with_rotations_as_they_were(tmp_path):
    saved(tmp_path / "theirs", "llama")
    ours = imported(tmp_path / "theirs")
    (tmp_path / "ours").mkdir()
    save_weights(ours.state_dict(), tmp_path / "ours/model.safetensors")
    settings = {"model": ours.config.model_dump(mode="json")}
    (tmp_path / "ours/config.json").write_text(json.dumps(settings))
    again = load_model(tmp_path / "ours", "cpu")
    assert isinstance(again.backbone, HuggingFace)
    tokens = torch.arange(20)[None]
    with torch.no_grad():
        assert torch.equal(again.encode(tokens).hidden, ours.encode(tokens).hidden)


def test_half_precision_is_kept_on_disk_and_computed_in_full(tmp_path):
    theirs = tiny_model("llama").bfloat16()
    theirs.save_pretrained(tmp_path)
    location = locate(str(tmp_path))
    weights = read_pretrained(location, describe(location, None), 12).weights
    assert {weight.dtype for weight in weights.values()} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("family", "found"),
    [
        ("gemma2", {"score_cap": 2.0, "input_scale": 4.0, "tied": True}),
        ("phi", {"score_bias": True}),
        ("cohere", {"score_scale": 0.25, "tied": True}),
        ("granite", {"score_scale": 0.25}),
    ],
)
def test_what_bends_scores_is_found(tmp_path, family, found):
    saved(tmp_path, family)
    config = describe(locate(str(tmp_path)), None)
    assert {name: getattr(config, name) for name in found} == found


def test_a_model_that_reads_ahead_and_is_not_known_as_an_encoder_is_refused(tmp_path, monkeypatch):
    saved_encoder(tmp_path, kind="AutoModelForMaskedLM")
    monkeypatch.setattr("stages.pretrained.model.is_encoder", lambda location, settings: False)
    location = locate(str(tmp_path))
    with pytest.raises(
        DataError, match=r"\(bert\) reads tokens behind the one that it scores, so no perplexity"
    ):
        stored_and_loaded(location, describe(location, None))


def test_a_cap_that_small_scores_hide_is_noticed(tmp_path, monkeypatch):
    """Its setting has a name that memlm does not know."""
    saved(tmp_path, "gemma2", final_logit_softcapping=30.0)
    monkeypatch.setattr("stages.pretrained.model.CAPS", ())
    location = locate(str(tmp_path))
    with pytest.raises(DataError, match="computes log-probabilities in a way"):
        stored_and_loaded(location, describe(location, None))


def test_a_model_whose_scores_differ_is_refused(tmp_path):
    """A scale that the settings do not tell, as of a model that computes in a way that is not
    known.
    """
    saved(tmp_path, "granite")
    config = json.loads((tmp_path / "config.json").read_text())
    location = locate(str(tmp_path))
    described = describe(location, None)
    (tmp_path / "config.json").write_text(json.dumps(config | {"embedding_multiplier": 3.0}))
    with pytest.raises(DataError, match="computes log-probabilities in a way"):
        stored_and_loaded(location, described)


def test_weights_that_lack_or_are_no_numbers_are_refused(tmp_path):
    saved(tmp_path, "llama")
    location, file = locate(str(tmp_path)), tmp_path / "model.safetensors"
    weights = load_file(file)
    save_file(
        {name: w for name, w in weights.items() if "layers.1.mlp.up" not in name},
        file,
        {"format": "pt"},
    )
    with pytest.raises(DataError, match=r"lacks weights .*layers\.1\.mlp\.up_proj"):
        stored_and_loaded(location, describe(location, None))
    save_file(
        {n: w * float("nan") if "norm" in n else w for n, w in weights.items()},
        file,
        {"format": "pt"},
    )
    with pytest.raises(DataError, match="no numbers"):
        stored_and_loaded(location, describe(location, None))
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(
        DataError, match=r"model\.safetensors is cut short or damaged: its 1,000 bytes are not"
    ):
        stored_and_loaded(location, describe(location, None))


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("model.embed_tokens.weight", r"313x16, expected 320x16"),
        ("model.layers.1.mlp.up_proj.weight", r"17x16, expected 24x16"),
    ],
)
def test_weights_of_another_shape_than_the_settings_say_are_named_with_both(tmp_path, name, shapes):
    saved(tmp_path, "llama")
    weights = load_file(tmp_path / "model.safetensors")
    weights[name] = weights[name][:-7].clone()
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    location = locate(str(tmp_path))
    with pytest.raises(
        DataError,
        match=rf"of another shape than its settings ask for: {name} is {shapes}\. Its config",
    ):
        stored_and_loaded(location, describe(location, None))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"quantization_config": {"quant_method": "gptq", "bits": 4}},
            r"quantized \(gptq\).*or a GGUF file of it\.$",
        ),
        ({"num_hidden_layers": "two"}, "Validation error for field 'num_hidden_layers': .*two"),
    ],
)
def test_settings_that_cannot_be_followed_are_told_in_a_sentence(tmp_path, settings, message):
    saved(tmp_path, "llama")
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))
    with pytest.raises(DataError, match=message):
        location = locate(str(tmp_path))
        stored_and_loaded(location, describe(location, None))


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("gpt2", {"n_layer": -1}),
        ("gpt2", {"n_head": -1}),
        ("gpt2", {"n_layer": 10**6}),
        ("gpt2", {"n_embd": 10**6}),
        ("llama", {"num_key_value_heads": -1}),
        ("llama", {"vocab_size": 10**9}),
        ("mixtral", {"num_local_experts": 10**6}),
        ("bert", {"num_hidden_layers": 10**6}),
        ("bert", {"num_attention_heads": -1}),
        ("t5", {"num_decoder_layers": 10**6}),
        ("t5", {"num_decoder_layers": -1}),
        ("marian", {"decoder_layers": 10**6}),
        ("marian", {"decoder_attention_heads": -1}),
    ],
)
def test_sizes_that_the_files_cannot_hold_are_refused_at_once(tmp_path, family, changes):
    makers = {"bert": saved_encoder, "t5": saved_translator, "marian": saved_translator}
    makers.get(family, saved)(tmp_path, family)
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(settings | changes))
    location = locate(str(tmp_path))
    began = time.monotonic()
    with pytest.raises(DataError):
        model_size(location, describe(location, None))
    assert time.monotonic() - began < 20
