"""Encoders of transformers, taken apart and put together again, beside themselves."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from stages.errors import DataError
from stages.models.weights import load_model, save_weights
from stages.pretrained import encoder
from stages.pretrained.location import locate
from stages.pretrained.model import describe
from tests.stages.pretrained.tiny import (
    ENCODERS,
    D,
    imported,
    saved_encoder,
    stored_and_loaded,
)

pytest.importorskip("transformers")


def hidden_states(theirs, tokens, config):
    """Of windows between [CLS] and [SEP], by transformers from ids, [B, L + 2, d]."""
    (before,), (after,) = config.before, config.after
    inputs = torch.nn.functional.pad(
        torch.nn.functional.pad(tokens, (1, 0), value=before), (0, 1), value=after
    )
    with torch.no_grad():
        return theirs.base_model(
            input_ids=inputs, attention_mask=torch.ones_like(inputs)
        ).last_hidden_state


def sentence_settings(folder, pooling, *modules, longest=30):
    """What sentence-transformers writes beside a model."""
    names = ["Transformer", "Pooling", *modules]
    paths = ["", *(f"{place}_{name}" for place, name in enumerate(names[1:], 1))]
    listed = [
        {"idx": i, "path": paths[i], "type": f"sentence_transformers.models.{n}"}
        for i, n in enumerate(names)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": longest}))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))


TOKENS = torch.randint(2, 300, (3, 12), generator=torch.Generator().manual_seed(1))


@pytest.mark.filterwarnings(
    "ignore:.torch.jit.script. is deprecated:DeprecationWarning"
)  # which DeBERTa calls
@pytest.mark.parametrize("family", ENCODERS)
def test_keys_are_the_mean_of_what_transformers_computes(tmp_path, family):
    theirs, ours = saved_encoder(tmp_path, family), imported(tmp_path)
    wanted = hidden_states(theirs, TOKENS, ours.config).mean(1)
    with torch.no_grad():
        encoding = ours.encode(TOKENS)
    assert encoding.hidden.shape == (3, 1, D) and encoding.ffn_input is None
    torch.testing.assert_close(encoding.hidden[:, 0], wanted, rtol=1e-5, atol=1e-5)
    assert ours.config.reads.longest_context == 38


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("family", ENCODERS)
def test_a_document_is_read_by_itself_whatever_it_is_padded_with(tmp_path, family):
    """Its first input, `<eos>`, is [CLS]."""
    theirs, ours = saved_encoder(tmp_path, family), imported(tmp_path)
    lengths = torch.tensor([12, 1, 7])
    with torch.no_grad():
        hidden = ours.encode(TOKENS, mask=torch.arange(12) < lengths[:, None]).hidden
    assert hidden.shape == (3, 12, D)
    for row, length in enumerate(lengths.tolist()):
        wanted = hidden_states(theirs, TOKENS[row : row + 1, 1:length], ours.config)[0, :length]
        torch.testing.assert_close(hidden[row, :length], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("pooling", "vector"),
    [
        (
            {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
            lambda hidden: hidden[:, 0],
        ),
        ({"pooling_mode_max_tokens": True}, lambda hidden: hidden.amax(1)),
        ({"pooling_mode": "mean"}, lambda hidden: hidden.mean(1)),
    ],
)
def test_settings_of_sentence_transformers_are_followed(tmp_path, pooling, vector):
    theirs = saved_encoder(tmp_path)
    sentence_settings(tmp_path, pooling, "Normalize")
    ours = imported(tmp_path)
    wanted = vector(hidden_states(theirs, TOKENS, ours.config))
    with torch.no_grad():
        found = ours.encode(TOKENS).hidden[:, 0]
    torch.testing.assert_close(
        found, wanted / wanted.norm(dim=1, keepdim=True), rtol=1e-5, atol=1e-5
    )
    assert ours.config.reads.longest_context == 28


@pytest.mark.parametrize(
    ("pooling", "modules", "message"),
    [
        ({"pooling_mode": "median"}, (), "pools hidden states in a way that is unknown"),
        ({"pooling_mode_median_tokens": True}, (), "known are: cls, max, mean, mean_sqrt_len_tok"),
        ({"pooling_mode": []}, (), "known are: cls, max"),
        ({}, ("LSTM",), r"a layer LSTM above its hidden states, unknown here"),
        ({}, ("Dense",), r"has no weights as safetensors in 2_Dense"),
    ],
)
def test_settings_that_are_not_known_are_refused(tmp_path, pooling, modules, message):
    saved_encoder(tmp_path)
    sentence_settings(tmp_path, pooling, *modules)
    if modules:
        dense = {"out_features": 3, "activation_function": "torch.nn.modules.activation.Tanh"}
        (tmp_path / f"2_{modules[0]}").mkdir()
        (tmp_path / f"2_{modules[0]}/config.json").write_text(json.dumps(dense))
    with pytest.raises(DataError, match=message):
        location = locate(str(tmp_path))
        stored_and_loaded(location, describe(location, None))


@pytest.mark.parametrize(
    "change", [{"do_lower_case": True}, None], ids=["lower case", "settings outside of the folder"]
)
def test_what_would_be_another_model_is_refused(tmp_path, change):
    folder = tmp_path / "model"
    saved_encoder(folder)
    sentence_settings(folder, {"pooling_mode": "mean"})
    describe(locate(str(folder)), None)
    if change is None:
        (folder / "1_Pooling").rename(tmp_path / "1_Pooling")
        file, change = folder / "modules.json", json.loads((folder / "modules.json").read_text())
        change[1]["path"] = "../1_Pooling"
    else:
        file = folder / "sentence_bert_config.json"
    file.write_text(json.dumps(change))
    with pytest.raises(DataError, match=file.name):
        describe(locate(str(folder)), None)


def test_a_checkpoint_with_a_head_is_read_without_it(tmp_path):
    theirs, ours = saved_encoder(tmp_path, kind="AutoModelForMaskedLM"), imported(tmp_path)
    assert not [name for name in ours.state_dict() if "cls" in name or "pooler" in name]
    with torch.no_grad():
        found = ours.encode(TOKENS).hidden[:, 0]
    torch.testing.assert_close(
        found, hidden_states(theirs, TOKENS, ours.config).mean(1), rtol=1e-5, atol=1e-5
    )


def test_weights_that_were_saved_are_loaded_and_score_nothing(tmp_path):
    saved_encoder(tmp_path / "theirs")
    ours = imported(tmp_path / "theirs")
    (tmp_path / "ours").mkdir()
    save_weights(ours.state_dict(), tmp_path / "ours/model.safetensors")
    (tmp_path / "ours/config.json").write_text(
        json.dumps({"model": ours.config.model_dump(mode="json")})
    )
    again = load_model(tmp_path / "ours", "cpu")
    with torch.no_grad():
        hidden = again.encode(TOKENS).hidden
        assert torch.equal(hidden, ours.encode(TOKENS).hidden)
    with pytest.raises(NotImplementedError):
        again.log_probs(hidden[:, 0])


def test_a_decoder_of_the_same_kind_is_a_causal_model(tmp_path):
    saved_encoder(tmp_path, kind="AutoModelForCausalLM", is_decoder=True)
    assert describe(locate(str(tmp_path)), None).backbone == "huggingface"


def test_embeddings_of_another_width_than_hidden_states_are_refused(tmp_path):
    saved_encoder(tmp_path, "electra", embedding_size=D // 2)
    with pytest.raises(DataError, match="embeddings of width 8 and hidden states of 16"):
        describe(locate(str(tmp_path)), None)


def test_hidden_states_that_differ_from_those_of_transformers_are_noticed(tmp_path, monkeypatch):
    """As of a model that takes embeddings from outside in another way than those it looks up."""
    saved_encoder(tmp_path)
    location = locate(str(tmp_path))
    config = describe(location, None)
    states = encoder._hidden_states
    monkeypatch.setattr(encoder, "_hidden_states", lambda *arguments: states(*arguments) * 1.01)
    with pytest.raises(DataError, match="computes keys in a way"):
        stored_and_loaded(location, config)


def test_weights_that_lack_or_are_no_numbers_are_refused(tmp_path):
    saved_encoder(tmp_path)
    location, file = locate(str(tmp_path)), tmp_path / "model.safetensors"
    weights = load_file(file)
    save_file(
        {n: w for n, w in weights.items() if "layer.1.output" not in n}, file, {"format": "pt"}
    )
    with pytest.raises(DataError, match=r"lacks weights .*layer\.1\.output"):
        stored_and_loaded(location, describe(location, None))
    save_file(
        {n: w * float("nan") if "layer.1" in n else w for n, w in weights.items()},
        file,
        {"format": "pt"},
    )
    with pytest.raises(DataError, match="no numbers"):
        stored_and_loaded(location, describe(location, None))
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"has no tokenizer\.json"):
        describe(location, None)
