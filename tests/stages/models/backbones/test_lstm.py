"""The LSTM backbone: its equations, what it carries, where it drops."""

import json
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.errors import UsageError
from stages.models.backbones.stream_configs import LSTMConfig
from stages.models.language_model import LanguageModel
from stages.models.weights import load_model, save_weights
from tests.oracles.lstm import lstm

V, D = 30, 6


def model(**changes):
    torch.manual_seed(0)
    return LanguageModel(LSTMConfig(**{"vocab_size": V, "width": D, "layers": 2} | changes)).eval()


def tokens(rows=2, length=9):
    return torch.randint(V, (rows, length), generator=torch.Generator().manual_seed(1))


def gates(net, layer):
    """Weights by gate, as the oracle wants them; torch stacks i, f, g, o."""
    weights = {}
    for prefix, name in {
        "W": "weight_ih",
        "U": "weight_hh",
        "b": "bias_ih",
        "c": "bias_hh",
    }.items():
        parts = (
            getattr(net.backbone.lstm, f"{name}_l{layer}")
            .detach()
            .numpy()
            .reshape(4, D, *([D] * (prefix in "WU")))
        )
        weights |= {prefix + gate: part for gate, part in zip("ifgo", parts, strict=True)}
    return weights


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("vocabulary", [{}, {"tied": False}, {"cutoffs": (6, 15), "factor": 2}])
def test_hidden_states_are_those_of_the_equations(layers, vocabulary):
    net = model(layers=layers, **vocabulary).double()
    drawn = torch.randn(
        2, layers, 2, D, dtype=torch.float64, generator=torch.Generator().manual_seed(2)
    )
    state = {"h": drawn[0], "c": drawn[1]}
    encoding = net.encode(tokens(), state)
    embedded = net.vocabulary.embed(tokens()).detach().numpy()
    for row in range(2):
        outputs, h, c = lstm(
            embedded[row],
            [gates(net, n) for n in range(layers)],
            *(part[:, row].numpy() for part in drawn),
        )
        np.testing.assert_allclose(
            encoding.hidden[row].detach().numpy(), outputs, rtol=1e-10, atol=1e-12
        )
        for name, want in (("h", h), ("c", c)):
            np.testing.assert_allclose(
                encoding.state[name][:, row].detach().numpy(), want, rtol=1e-10, atol=1e-12
            )


@settings(max_examples=20, deadline=None)
@given(cuts=st.lists(st.integers(1, 8), max_size=4, unique=True))
def test_pieces_with_carried_state_are_the_whole(cuts):
    net, state, pieces = model(), None, []
    borders = [0, *sorted(cuts), 9]
    for start, stop in pairwise(borders):
        encoding = net.encode(tokens()[:, start:stop], state)
        pieces.append(encoding.hidden)
        state = encoding.state
    whole = net.encode(tokens())
    torch.testing.assert_close(torch.cat(pieces, 1), whole.hidden)
    torch.testing.assert_close(state, whole.state)


def test_its_one_key_is_its_hidden_state():
    encoding = model().encode(tokens())
    assert encoding.key("hidden") is encoding.hidden
    with pytest.raises(UsageError, match="--key hidden"):
        encoding.key("ffn-input")


def test_all_weights_begin_in_the_initial_range():
    net = model(initial_range=0.05, width=32, cutoffs=(6, 15), factor=2, tied=False)
    for name, parameter in net.named_parameters():
        assert float(parameter.detach().abs().max()) <= 0.05, name
        assert float(parameter.detach().std()) == pytest.approx(0.05 / 3**0.5, rel=0.25), name


def test_dropout_is_on_embeddings_between_layers_and_on_the_output():
    """Of layers whose weights are zero h is zero; ones in its place are dropped and scaled."""
    net = model(dropout=0.5, width=64).train()
    seen = []
    net.backbone.lstm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    hidden = net.encode(tokens(8, 20)).hidden
    for dropped in (seen[0], hidden):
        assert float((dropped == 0).float().mean()) == pytest.approx(0.5, abs=0.05)
    assert net.backbone.lstm.dropout == 0.5
    assert model(dropout=0.5, layers=1).backbone.lstm.dropout == 0
    assert torch.equal(net.eval().encode(tokens()).hidden, net.encode(tokens()).hidden)


def test_weights_survive_the_disk(tmp_path):
    net = model()
    save_weights(net.state_dict(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"model": net.config.model_dump(mode="json")}))
    loaded = load_model(tmp_path, "cpu")
    assert loaded.config == net.config
    assert torch.equal(loaded.encode(tokens()).hidden, net.encode(tokens()).hidden)
