"""MemSizer: its equations, three forms that are one, its gradients, and a Transformer that has it."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from stages.models.backbones.window_configs import TransformerConfig
from stages.models.config import parse_model
from stages.models.language_model import LanguageModel
from stages.models.layers.memory_settings import MemSizerSettings
from stages.models.layers.memsizer import MemSizer, summed_reads
from tests.oracles.memsizer import memsizer
from tests.stages.models.backbones.contract import BackboneContract

D, HEADS, T = 6, 3, 11


def layer(**changes):
    """In float64 and evaluation mode, with norms and biases that are all different."""
    torch.manual_seed(0)
    sizes = {"width": D, "heads": HEADS, "attention_dropout": 0.5}
    made = (
        MemSizer(
            TransformerConfig(**sizes), MemSizerSettings(**{"slots": 4, "chunk": 3, **changes})
        )
        .double()
        .eval()
    )
    made.initialize(2)
    for parameter in made.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return made


def inputs(rows=2, length=T):
    return torch.randn(
        rows, length, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )


@pytest.mark.parametrize("slots", [1, 4, 9])
@pytest.mark.parametrize("length", [1, T])
def test_it_reads_as_the_equations_say(slots, length):
    made = layer(slots=slots)
    weights = {name: parameter.detach().numpy() for name, parameter in made.named_parameters()}
    with torch.no_grad():
        got = made(inputs(length=length))
    for row in range(2):
        wanted = memsizer(inputs(length=length)[row].numpy(), weights, HEADS)
        np.testing.assert_allclose(got[row], wanted, rtol=1e-10, atol=1e-10)


def parts(length, slots=4):
    random = torch.Generator().manual_seed(2)
    return [
        torch.randn(2, length, n, dtype=torch.float64, generator=random) for n in (slots, slots, D)
    ]


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, T - 1, T, 1000])
def test_in_parallel_in_chunks_and_token_by_token_it_is_the_same(chunk):
    """The numbers, the sums that are left, and the gradients."""
    whole, same = ([part.requires_grad_() for part in parts(T)] for _ in range(2))
    seed = torch.randn(2, T, D, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    (wanted, after), (got, left) = summed_reads(*whole, T), summed_reads(*same, chunk)
    torch.testing.assert_close((got, left), (wanted, after), rtol=1e-12, atol=1e-12)
    gradients = [
        torch.autograd.grad((out * seed).sum(), of) for out, of in ((got, same), (wanted, whole))
    ]
    torch.testing.assert_close(*gradients, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("cuts", [[1], [4, 5], list(range(1, T))])
def test_a_window_that_is_read_in_pieces_is_that_of_one_pass(cuts):
    made, x = layer(), inputs()
    with torch.no_grad():
        whole, pieces, before = made(x), [], made.begin(x)
        for start, stop in pairwise([0, *cuts, T]):
            piece, before = made.continue_window(x[:, start:stop], before, start)
            pieces.append(piece)
            assert before.values.shape == (2, 4, D)
    torch.testing.assert_close(torch.cat(pieces, 1), whole, rtol=1e-12, atol=1e-12)


def test_gradients_are_those_of_differences():
    assert torch.autograd.gradcheck(
        lambda *given: summed_reads(*given, 2)[0], [p.requires_grad_() for p in parts(5)]
    )


def test_weights_of_slots_are_dropped_in_training_alone():
    made = layer()
    with torch.no_grad():
        assert torch.equal(made(inputs()), made(inputs()))
        made.train()
        assert not torch.equal(made(inputs()), made(inputs()))


def test_low_precision_leaves_sums_exact():
    made = layer().float()
    x = inputs(length=400).float().bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        low = made(x)
    assert torch.equal(low, made(x.float()))


@pytest.mark.parametrize("name", ["slots", "chunk"])
def test_none_is_too_few(name):
    with pytest.raises(ValueError, match="greater than 0"):
        MemSizerSettings(**{name: 0})


class TestBackboneOfIt(BackboneContract):
    """A Transformer with it keeps the contract of every backbone."""

    @pytest.fixture
    def backbone(self):
        return "transformer"

    @pytest.fixture(params=[None, (2,)])
    def config(self, request, backbone):
        chosen = {"name": "memsizer", "slots": 3, "layers": request.param}
        return parse_model({"backbone": backbone, "width": 8, "attention": chosen}).sized(30, 5)

    @pytest.mark.parametrize("cuts", [[1], [4], list(range(1, 5))])
    @pytest.mark.parametrize(
        "changes", [{}, {"positions": "sinusoidal"}, {"lookup": {"name": "hashed-ngrams"}}]
    )
    def test_in_pieces_a_window_has_the_same_numbers_if_all_layers_can(self, config, changes, cuts):
        config = parse_model(config.model_dump(mode="json") | changes)
        assert config.in_pieces
        torch.manual_seed(0)
        model, state, pieces, tokens = LanguageModel(config).eval().double(), {}, [], self.tokens(5)
        with torch.no_grad():
            whole = model.encode(tokens)
            for start, stop in pairwise([0, *cuts, 5]):
                pieces.append(model.encode(tokens[:, start:stop], state))
                state = pieces[-1].state
        assert whole.state is None
        for name in config.reads.keys:
            wanted, found = whole.key(name), torch.cat([piece.key(name) for piece in pieces], 1)
            torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)

    def test_it_stands_where_it_was_asked_for(self, model, config):
        chosen = [isinstance(block.attention, MemSizer) for block in model.backbone.blocks]
        assert chosen == [config.attention.layers is None, True]
