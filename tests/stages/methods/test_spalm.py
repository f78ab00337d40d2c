"""The method spalm: its loss against a loop in float64, and which neighbours reach which position."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from stages.examples.cutting import Cutting
from stages.examples.streams import Streams
from stages.methods import METHODS
from stages.methods.config import Batches
from stages.methods.method import BatchIndex, Carried
from stages.methods.settings import USUAL_DROPOUT, SpalmConfig
from stages.methods.spalm import without_some
from stages.models.backbones.stream_configs import LSTMConfig, TransformerXLConfig
from stages.models.backbones.window_configs import TransformerConfig
from stages.models.language_model import LanguageModel
from stages.models.vocabulary import AdaptiveVocabulary
from tests.oracles import spalm as oracle

V, L, K, T = 12, 5, 3, 40
TURN = BatchIndex(0, 0, 1, 0)
SIZES = {"vocab_size": V, "width": 8, "dropout": 0.0, "gate": "vector"}
BACKBONES = {
    "transformer": TransformerConfig(layers=2, heads=2, ffn_width=8, max_positions=L, **SIZES),
    "transformer-xl": TransformerXLConfig(
        layers=2, heads=2, ffn_width=8, segment_length=L, mem_length=L, **SIZES
    ),
    "lstm": LSTMConfig(initial_range=1.0, **SIZES),
}
VOCABULARIES = {"full": {}, "adaptive": {"cutoffs": (3, 7), "factor": 2}, "untied": {"tied": False}}


@dataclass
class Block:
    """Tokens that validation has read, and the model's hidden states."""

    start: int
    targets: torch.Tensor
    hidden: torch.Tensor

    def key(self, name):
        assert name == "hidden"
        return self.hidden


def model(backbone="transformer", **changes):
    torch.manual_seed(0)
    made = LanguageModel(BACKBONES[backbone].model_copy(update=changes)).double().eval()
    if isinstance(made.vocabulary, AdaptiveVocabulary):
        made.vocabulary.sort_by(torch.arange(V) * 5 % V)
    for parameter in made.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return made


@pytest.fixture
def neighbors():
    random = np.random.default_rng(2)
    made = {split: random.integers(-1, V, (T, K)).astype(np.int32) for split in ("train", "valid")}
    made["train"][3] = -1
    return made


@pytest.fixture
def method(neighbors):
    return METHODS.load("spalm")(SpalmConfig(k=K), {"neighbors": neighbors})


def segments():
    return Streams(np.random.default_rng(1).integers(0, V, T), 0, Cutting("windows", L, L))


def read_with(lm, hidden, tokens, targets):
    """log p of targets [N] given hidden states [N, d] and tokens of neighbours [N, k], by loops in
    float64.
    """
    embeddings = lm.vocabulary.embed(torch.arange(V)).detach().numpy()
    z = oracle.gated(hidden.detach().numpy(), tokens, embeddings, lm.gate.weight.detach().numpy())
    return lm.log_probs(torch.from_numpy(z)).gather(1, targets[:, None])[:, 0]


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_loss_is_that_of_hidden_states_that_neighbours_have_entered(
    method, neighbors, backbone, vocabulary
):
    lm = model(backbone, **VOCABULARIES[vocabulary])
    batch = method.batch(segments(), np.array([0, 4]), TURN)
    places = np.concatenate((np.arange(L), 4 * L + np.arange(L)))
    hidden = lm.encode(batch.inputs).hidden.flatten(0, 1)
    expected = read_with(lm, hidden, neighbors["train"][places], batch.targets.flatten())
    torch.testing.assert_close(method.loss(lm, batch, Carried())[0], -expected.mean())


def test_a_position_reads_the_neighbours_of_the_token_that_it_predicts(method, neighbors):
    batch = method.batch(segments(), np.array([2, 0]), TURN)
    assert np.array_equal(batch.neighbor_tokens[0], neighbors["train"][2 * L : 3 * L])
    assert np.array_equal(batch.neighbor_tokens[1], neighbors["train"][:L])
    assert batch.neighbor_tokens.dtype == torch.int64
    assert torch.equal(batch.targets[0], torch.from_numpy(segments().ids[2 * L : 3 * L]))


@pytest.mark.parametrize("backbone", ["transformer-xl", "lstm"])
def test_the_state_is_carried(method, backbone):
    lm, split = model(backbone), segments()
    assert method.layout(lm.config).streams
    first, second = (method.batch(split, np.array([number]), TURN) for number in (0, 1))
    alone = method.loss(lm, second, Carried()).mean
    carried = method.loss(lm, first, Carried()).carried
    after = method.loss(lm, second, carried).mean
    assert not torch.isclose(alone, after)


def test_validation_reads_the_neighbours_of_its_own_split(method, neighbors):
    lm = model()
    batch = method.batch(segments(), np.array([0]), TURN)
    hidden = lm.encode(batch.inputs).hidden[0].detach()
    read = Block(7, batch.targets[0], hidden)
    expected = read_with(lm, hidden, neighbors["valid"][7 : 7 + L], batch.targets[0])
    torch.testing.assert_close(method.log_prob(lm, read, torch.zeros(L)), expected)


def test_gradients_reach_the_embeddings_of_neighbours_and_the_gate(method, neighbors):
    lm = model("transformer", tied=False)
    batch = method.batch(segments(), np.array([0]), TURN)
    method.loss(lm, batch, Carried())[0].backward()
    read = set(batch.inputs.flatten().tolist()) | set(batch.neighbor_tokens.flatten().tolist()) - {
        -1
    }
    moved = lm.vocabulary.embedding.grad.abs().sum(1).nonzero().flatten().tolist()
    assert set(moved) == read
    assert lm.gate.weight.grad.abs().sum() > 0


def test_some_positions_go_without_their_neighbours_in_training(neighbors):
    dropping = METHODS.load("spalm")(
        SpalmConfig(k=K, neighbor_dropout=0.5), {"neighbors": neighbors}
    )
    lm = model()
    batch = dropping.batch(segments(), np.array([0, 4]), TURN)
    places = np.concatenate((np.arange(L), 4 * L + np.arange(L)))
    hidden = lm.encode(batch.inputs).hidden.flatten(0, 1)
    whole = read_with(lm, hidden, neighbors["train"][places], batch.targets.flatten())
    torch.testing.assert_close(dropping.loss(lm, batch, Carried())[0], -whole.mean())
    lm.train()
    torch.manual_seed(3)
    kept = (torch.rand(len(places), 1) >= 0.5).numpy()
    assert 0 < kept.sum() < len(places)
    expected = read_with(
        lm, hidden, np.where(kept, neighbors["train"][places], -1), batch.targets.flatten()
    )
    torch.manual_seed(3)
    torch.testing.assert_close(dropping.loss(lm, batch, Carried())[0], -expected.mean())


def test_neighbours_are_left_out_a_position_at_a_time_and_as_often_as_is_said():
    tokens = torch.arange(4000)[:, None].repeat(1, K)
    left = without_some(tokens, 0.25)
    out = (left == -1).all(1)
    assert torch.equal(left[~out], tokens[~out])
    assert abs(out.double().mean() - 0.25) < 4 * (0.25 * 0.75 / 4000) ** 0.5
    before = torch.get_rng_state()
    assert without_some(tokens, 0.0) is tokens
    assert torch.equal(
        torch.get_rng_state(), before
    )  # models of before the option have the same bytes


def test_half_of_the_positions_unless_it_is_said_or_the_gate_learns_alone():
    def chosen(**settings):
        return SpalmConfig(**settings).complete(BACKBONES["transformer"], Batches(segments=8))

    assert chosen().neighbor_dropout == USUAL_DROPOUT == 0.5
    assert chosen(neighbor_dropout=0.1).neighbor_dropout == 0.1
    assert (
        chosen(only_gate=True).neighbor_dropout == chosen(neighbor_dropout=0).neighbor_dropout == 0
    )


def learnt(method, lm):
    return [parameter for group in method.parameter_groups(lm) for parameter in group.parameters]


def test_the_gate_alone_is_learnt_where_that_is_asked_for(neighbors):
    lm = model()
    alone = METHODS.load("spalm")(SpalmConfig(k=K, only_gate=True), {"neighbors": neighbors})
    assert [p is lm.gate.weight for p in learnt(alone, lm)] == [True]
    everything = METHODS.load("spalm")(SpalmConfig(k=K), {"neighbors": neighbors})
    assert len(learnt(everything, lm)) == len(list(lm.parameters()))


def test_a_leak_is_learnt_at_once(neighbors):
    """A neighbour that holds the answer drives the loss down: what excluding a token's own row is
    for.
    """
    leaked, other = segments().ids[:, None].astype(np.int32), neighbors["train"][:, :1]
    assert loss_after_training(leaked) < 0.8 * loss_after_training(other)


def test_another_number_of_neighbours_than_is_read_is_a_mistake(neighbors):
    method = METHODS.load("spalm")(SpalmConfig(k=K - 1), {"neighbors": neighbors})
    with pytest.raises(AssertionError):
        method.batch(segments(), np.array([0]), TURN)


def loss_after_training(tokens):
    torch.manual_seed(0)
    lm = LanguageModel(BACKBONES["transformer"])
    method = METHODS.load("spalm")(SpalmConfig(k=1), {"neighbors": {"train": tokens}})
    optimizer = torch.optim.Adam(lm.parameters(), 0.03)
    for number in range(24):
        loss = method.loss(
            lm, method.batch(segments(), np.array([number % 8]), TURN), Carried()
        ).mean
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()
