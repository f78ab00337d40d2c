"""Hashed n-grams: their equations, their gradients, what they remember, and backbones that have
them.
"""

from itertools import pairwise

import numpy as np
import pytest
import torch

from stages.models.backbones.window_configs import TransformerConfig
from stages.models.config import parse_model
from stages.models.language_model import LanguageModel
from stages.models.layers.hashed_ngrams import HashedNgrams, hash_factors, hash_ngrams, signed_root
from stages.models.layers.memory_settings import HashedNgramsSettings
from tests.oracles.hashed_ngrams import hashed_ngrams, primes_from, rows_of
from tests.stages.models.backbones.contract import BackboneContract
from tests.stages.models.layers.precision import assert_low_precision_is_near

V, D, T = 30, 6, 23
TWO = [0, 11]


def layer(**changes):
    """In float64, with weights that are all different."""
    torch.manual_seed(0)
    settings = HashedNgramsSettings(
        **{"heads": 2, "slots": 5, "entry_width": 3, "kernel": 3, **changes}
    )
    made = HashedNgrams(
        TransformerConfig(width=D, heads=2, vocab_size=V, dropout=0.0), settings
    ).double()
    made.initialize(2)
    for parameter in made.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return made


def stream(rows=2, length=T):
    """The residual stream and its tokens."""
    random = torch.Generator().manual_seed(1)
    return torch.randn(rows, length, D, dtype=torch.float64, generator=random), torch.randint(
        V, (rows, length), generator=random
    )


def offsets(starts, rows=2):
    return torch.tensor([[t - max(s for s in starts if s <= t) for t in range(T)]] * rows)


def tables_of(settings):
    return list(zip(settings.orders, settings.sizes, strict=True))


@pytest.mark.parametrize("starts", [[0], TWO, [0, 1, 2, 5]])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"gate": "signed-root"},
        {"orders": (3, 2)},
        {"orders": (4,), "kernel": 1},
        {"heads": 1, "slots": 1},
    ],
)
def test_it_reads_as_the_equations_say(changes, starts):
    made = layer(**changes)
    x, tokens = stream()
    with torch.no_grad():
        got, _ = made(x, tokens, None if starts == [0] else offsets(starts), made.begin(x))
    factors = {order: hash_factors(V, order) for order in made.settings.orders}
    weights = {name: parameter.detach().numpy() for name, parameter in made.named_parameters()}
    for row in range(2):
        wanted = hashed_ngrams(
            x[row].numpy(),
            tokens[row].tolist(),
            starts,
            weights,
            tables_of(made.settings),
            factors,
            made.settings.gate,
        )
        np.testing.assert_allclose(got[row], wanted, rtol=1e-10, atol=1e-10)


def test_tables_have_different_prime_sizes():
    sizes = HashedNgramsSettings(slots=100, heads=3).sizes
    assert [size for some in sizes for size in some] == primes_from(100, 6)


@pytest.mark.parametrize("types", [1, V, 2**17, 2**31])
def test_products_of_a_hash_stay_integers(types):
    """The largest token and the largest factor: what 64 bits hold is what Python's integers say."""
    factors = hash_factors(types, 3)
    assert all(factor % 2 for factor in factors)
    assert max(factors) * types < 2**63
    tokens = [types - 1, 0, types // 2]
    (got,) = hash_ngrams([torch.tensor([token]) for token in tokens], factors).tolist()
    assert got == (tokens[0] + 1) * factors[0] ^ factors[1] * (tokens[1] + 1) ^ factors[2] * (
        tokens[2] + 1
    )


def test_heads_tell_most_ngrams_apart_that_share_a_row_in_one():
    """Tables are of some hundred rows; of pairs of trigrams that collide in a head, few do in the
    next.
    """
    settings = HashedNgramsSettings(orders=(3,), heads=2, slots=200)
    tokens, factors = np.random.default_rng(0).integers(0, V, 700).tolist(), {3: hash_factors(V, 3)}
    places = {
        tuple(tokens[t - 2 : t + 1]): rows_of(tokens, t, [0], tables_of(settings), factors)
        for t in range(2, 700)
    }
    first, second = np.array(list(places.values())).T
    same = np.triu(first[:, None] == first, 1)
    assert same.sum() > 500
    assert (same & (second[:, None] == second)).sum() < same.sum() / 50


@pytest.mark.parametrize("starts", [[0], TWO])
@pytest.mark.parametrize("cuts", [[1], [4, 5, 12], list(range(1, T))])
def test_however_a_stream_is_cut_the_numbers_are_those_of_one_pass(starts, cuts):
    made = layer()
    x, tokens = stream()
    back = offsets(starts)
    with torch.no_grad():
        whole, after = made(x, tokens, back, made.begin(x))
        memory, pieces = made.begin(x), []
        for start, stop in pairwise([0, *cuts, T]):
            piece, memory = made(*(part[:, start:stop] for part in (x, tokens, back)), memory)
            pieces.append(piece)
    torch.testing.assert_close(torch.cat(pieces, 1), whole)
    torch.testing.assert_close(memory, after)


def test_gates_of_either_form_differ():
    x, tokens = stream()
    with torch.no_grad():
        plain, root = (
            made(x, tokens, None, made.begin(x))[0] for made in (layer(), layer(gate="signed-root"))
        )
    assert (plain - root).abs().max() > 1e-3


def test_the_root_of_a_score_has_finite_gradients_at_zero():
    scores = torch.tensor([0.0, 1e-9, -1e-9, -0.25, 9.0], dtype=torch.float64, requires_grad=True)
    roots = signed_root(scores)
    roots.sum().backward()
    torch.testing.assert_close(
        roots.detach(), torch.tensor([0.0, 1e-3, -1e-3, -0.5, 3.0], dtype=torch.float64)
    )
    torch.testing.assert_close(
        scores.grad, torch.tensor([0.0, 0.0, 0.0, 1.0, 1 / 6], dtype=torch.float64)
    )


@pytest.mark.parametrize("gate", ["plain", "signed-root"])
def test_gradients_are_those_of_differences(gate):
    made = layer(kernel=2, gate=gate)
    x, tokens = (part[:1, :5] for part in stream())
    names, weights = zip(*made.named_parameters(), strict=True)

    def read(x, *values):
        own = dict(zip(names, values, strict=True))
        return torch.func.functional_call(made, own, (x, tokens, None, made.begin(x)))[0]

    assert torch.autograd.gradcheck(
        read, (x.requires_grad_(), *(w.detach().requires_grad_() for w in weights))
    )


def test_it_begins_as_nothing_and_what_was_never_read_stays_nothing():
    settings = HashedNgramsSettings(orders=(2,), heads=1, slots=20000)
    made = HashedNgrams(TransformerConfig(width=D, heads=2, vocab_size=V, dropout=0.0), settings)
    made.initialize(2)
    x, tokens = (part.float() if part.is_floating_point() else part for part in stream(1))
    tokens = tokens % 15
    assert torch.equal(made(x, tokens, None, made.begin(x))[0], x)
    optimizer = torch.optim.Adam(made.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        made(x, tokens, None, made.begin(x))[0].square().sum().backward()
        optimizer.step()
    assert not torch.equal(made(x, tokens, None, made.begin(x))[0], x)
    others = tokens + 15
    said = (torch.cat((made.begin(x).tokens, ids), 1) for ids in (tokens, others))
    read, never = (set(made.slots(ids, None).flatten().tolist()) for ids in said)
    assert not read & never
    made.taps.data.zero_()
    assert torch.equal(made(x, others, None, made.begin(x))[0], x)


def test_tables_learn_apart():
    apart = layer(table_lr=0.5).separate_parameters()
    assert [p.shape for p in apart.parameters] == [(5 + 7 + 11 + 13, 3)]
    assert apart.lr == 0.5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"orders": ()}, "must name at least one length"),
        ({"orders": (2, 2)}, "each once"),
        ({"orders": (1,)}, "greater than or equal to 2"),
        ({"slots": 0}, "greater than 0"),
        ({"table_lr": 0}, "greater than 0"),
        ({"scope": "page"}, "'stream' or 'document'"),
        ({"gate": "root"}, "'plain' or 'signed-root'"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_does(changes, words):
    with pytest.raises(ValueError, match=words):
        HashedNgramsSettings(**changes)


class TestBackboneOfIt(BackboneContract):
    """A backbone with it keeps the contract of every backbone."""

    @pytest.fixture(params=["transformer", "transformer-xl"])
    def backbone(self, request):
        return request.param

    @pytest.fixture
    def config(self, backbone):
        chosen = {"name": "hashed-ngrams", "slots": 50, "heads": 2, "entry_width": 3, "layers": [2]}
        return parse_model({"backbone": backbone, "width": 8, "lookup": chosen}).sized(30, 5)

    @pytest.fixture
    def model(self, config):
        torch.manual_seed(0)
        made = LanguageModel(config).eval()
        for name, parameter in made.named_parameters():
            if ".lookup." in name:
                parameter.data += torch.randn_like(parameter)
        return made

    def test_it_stands_in_the_block_that_was_asked_for(self, model):
        assert [isinstance(block.lookup, HashedNgrams) for block in model.backbone.blocks] == [
            False,
            True,
        ]

    @pytest.mark.parametrize("gradients", [False, True])
    def test_cached_inputs_are_those_that_were_looked_up(self, backbone, model, gradients):
        """Attention of the next segment sees the rows of the segment before, as the first one does
        its own.
        """
        if backbone == "transformer":
            pytest.skip("caches nothing")
        block, given = model.backbone.blocks[1], []
        hook = block.attention.register_forward_hook(
            lambda _, inputs, out: given.append(inputs[0].raw)
        )
        with torch.set_grad_enabled(gradients):
            model.encode(self.tokens(10)[:, 5:], model.encode(self.tokens(10)[:, :5]).state)
        hook.remove()
        torch.testing.assert_close(given[1][:, :5], given[0])


def test_a_document_sees_nothing_of_the_one_before():
    chosen = {"name": "hashed-ngrams", "slots": 50, "scope": "document"}
    config = parse_model(
        {"backbone": "transformer-xl", "width": 8, "mem_length": 0, "lookup": chosen}
    ).sized(V, 4)
    assert config.reads.documents
    torch.manual_seed(0)
    model = LanguageModel(config).double().eval()
    for block in model.backbone.blocks:
        block.lookup.table.data.normal_()
        block.lookup.taps.data.normal_()
    tokens = torch.randint(V, (1, 12))
    back = torch.tensor([[*range(8), *range(4)]])
    with torch.no_grad():
        both = model.encode(tokens, None, back).hidden[:, 8:]
        alone = model.encode(tokens[:, 8:], None, back[:, 8:]).hidden
        across = model.encode(tokens, None, torch.arange(12)[None]).hidden[:, 8:]
    torch.testing.assert_close(both, alone)
    assert (both - across).abs().max() > 1e-3


def test_low_precision_is_near_and_keeps_exact_states():
    chosen = {"name": "hashed-ngrams", "slots": 50, "layers": [2]}
    torch.manual_seed(0)
    model = LanguageModel(
        parse_model({"backbone": "transformer-xl", "width": 8, "lookup": chosen}).sized(V, 4)
    )
    model.backbone.blocks[1].lookup.table.data.normal_()
    random = torch.Generator().manual_seed(1)
    assert_low_precision_is_near(
        model.eval(),
        torch.randn(2, 9, 8, generator=random),
        torch.randint(V, (2, 9), generator=random),
    )


def test_a_table_on_the_host_stays_where_it_is_and_gives_the_same():
    moved, there = layer(on_host=True), layer()
    names = [name for name, _ in moved.named_parameters()]
    moved.to("meta")
    assert {name for name, parameter in moved.named_parameters() if not parameter.is_meta} == {
        "table"
    }
    assert (
        names
        == [name for name, _ in moved.named_parameters()]
        == [name for name, _ in there.named_parameters()]
    )
    x, tokens = stream()
    one, other = layer(on_host=True).float(), layer().float()
    other.load_state_dict(one.state_dict())
    for made in (one, other):
        made(x.float(), tokens, None, made.begin(x.float()))[0].sum().backward()
    assert one.table.grad.is_sparse and not other.table.grad.is_sparse
    torch.testing.assert_close(one.table.grad.to_dense().float(), other.table.grad)
    assert other.table.grad.any()
