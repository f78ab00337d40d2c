import numpy as np
import pytest
import torch

from stages.errors import UsageError
from stages.examples.cutting import Cutting
from stages.examples.streams import Streams
from stages.methods import METHODS
from stages.methods.config import Batches
from stages.methods.method import BatchIndex, Carried
from stages.methods.settings import TrimeConfig, TrimeExtConfig, TrimeLongConfig
from stages.models.backbones.stream_configs import LSTMConfig, TransformerXLConfig
from stages.models.backbones.window_configs import TransformerConfig
from stages.models.language_model import LanguageModel
from stages.models.layers.memory_settings import (
    CompressiveSettings,
    InfinitySettings,
    MemorizingSettings,
)
from stages.models.vocabulary import AdaptiveVocabulary
from tests.oracles import trime as oracle

TRIME = ("trime", "trime-long", "trime-ext")
V, L = 12, 5
WHOLE = Batches(4, accumulate=8)
"""Of so many documents an update that a forward batch is one memory."""
LATE = BatchIndex(number=50, update=50, updates=100, seed=0)
DOCUMENTS = np.array([0, 7, 18, 40])
REMEMBERING = {
    "compressive": CompressiveSettings(long_length=4, rate=5),
    "memorizing": MemorizingSettings(long_length=12, neighbors=3),
    "infinity": InfinitySettings(basis=4, samples=4),
}


def model(backbone="transformer", **settings):
    torch.manual_seed(0)
    blocks = {"vocab_size": V, "width": 8, "heads": 2, "ffn_width": 8, "layers": 2} | settings
    config = {
        "transformer": TransformerConfig(**blocks, max_positions=L),
        "transformer-xl": TransformerXLConfig(**blocks, segment_length=L, mem_length=L + 2),
        "lstm": LSTMConfig(vocab_size=V, width=8, dropout=0.0, initial_range=1.0, **settings),
        **{
            name: TransformerXLConfig(**blocks, segment_length=L, mem_length=L, attention=attention)
            for name, attention in REMEMBERING.items()
        },
    }[backbone]
    made = LanguageModel(config).double().eval()
    if isinstance(made.vocabulary, AdaptiveVocabulary):
        made.vocabulary.sort_by(torch.arange(V) * 5 % V)
    for parameter in made.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return made


def split(tokens=40):
    ids = np.random.default_rng(1).choice([0, 1, 4, 5, 9, 11], tokens)
    return Streams(ids, 0, Cutting("windows", L, L), DOCUMENTS)


def scored(lm, batch, key):
    """The model's own scores of a batch, and its keys: log p and log Z [B, L], keys [B, L, d];
    differentiable.
    """
    encoding = lm.encode(batch.inputs)
    hidden = encoding.hidden.flatten(0, 1)
    dense = torch.stack([torch.as_tensor(row) for row in _dense(lm, hidden)])
    log_z = _head_log_z(lm, hidden)
    log_p = dense.gather(1, batch.targets.flatten()[:, None]).squeeze(1)
    return log_p.view_as(batch.targets), log_z.view_as(batch.targets), encoding.key(key)


def _dense(lm, hidden):
    return lm.vocabulary.log_probs(hidden)


def _head_log_z(lm, hidden):
    vocabulary = lm.vocabulary
    if hasattr(vocabulary, "output_weight"):
        return (hidden @ vocabulary.output_weight.T).logsumexp(-1)
    head, weight = vocabulary._head(hidden)
    return (head @ weight.T).logsumexp(-1)


KINDS = {"full": {}, "adaptive": {"cutoffs": (3, 7), "factor": 2}}


@pytest.fixture(params=KINDS, ids=list(KINDS))
def lm(request):
    return model(**KINDS[request.param])


def agree(method, lm, batch, cells, key="ffn-input", temperature=1.0, constant=False):
    """Loss and gradients of a method are those of the oracle's cells."""
    loss, state, _ = method.loss(lm, batch, Carried())
    got = torch.autograd.grad(loss, list(lm.parameters()), allow_unused=True)
    log_p, log_z, keys = scored(lm, batch, key)
    readable = keys.detach() if constant else keys
    expected = oracle.joint_loss(log_p, log_z, keys, batch.targets, cells, temperature, readable)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(
        got, torch.autograd.grad(expected, list(lm.parameters()), allow_unused=True)
    )
    assert not state.tensors()


@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_trime_reads_the_segment_before_each_position(lm, temperature):
    method = METHODS.load("trime")(TrimeConfig(temperature=temperature))
    batch = method.batch(split(), np.array([0, 3, 5]), LATE)
    agree(method, lm, batch, oracle.local(3, L), temperature=temperature)


def test_trime_with_the_hidden_state_as_key(lm):
    method = METHODS.load("trime")(TrimeConfig(key="hidden"))
    agree(
        method, lm, method.batch(split(), np.array([2, 4]), LATE), oracle.local(2, L), key="hidden"
    )


@pytest.mark.parametrize("name", TRIME)
def test_without_backpropagation_keys_that_are_read_are_constants(lm, name):
    method = METHODS.load(name)(
        METHODS.settings(name)(backpropagate=False).complete(TransformerConfig(), WHOLE)
    )
    batch = method.batch(split(), np.array([1, 2, 3, 4]), LATE)
    cells = {
        "trime": oracle.local(4, L),
        "trime-long": oracle.chained(4, L, 4, documents(batch)),
        "trime-ext": oracle.of_others(4, L, bool(getattr(batch, "local", torch.zeros(1))[0])),
    }[name]
    agree(method, lm, batch, cells, constant=True)


def documents(batch):
    """The document of each position of segments 1 to 4, from where it begins."""
    place = np.arange(1, 5)[:, None] * L + np.arange(L)
    return np.searchsorted(DOCUMENTS, place, side="right")


@pytest.mark.parametrize("scope", ["document", "stream"])
@pytest.mark.parametrize("together", [1, 2, 4])
def test_trime_long_reads_on_into_the_segments_before(lm, scope, together):
    settings = TrimeLongConfig(consecutive=together, scope=scope).complete(
        TransformerConfig(), Batches(4)
    )
    method = METHODS.load("trime-long")(settings)
    batch = method.batch(split(), np.array([1, 2, 3, 4]), LATE)
    within = documents(batch) if scope == "document" else None
    agree(method, lm, batch, oracle.chained(4, L, together, within))


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_trime_ext_reads_the_other_segments(lm, p):
    method = METHODS.load("trime-ext")(TrimeExtConfig(local_dropout=p))
    batch = method.batch(split(), np.array([6, 0, 3]), LATE)
    assert batch.local.tolist() == [p == 0] * 3
    agree(method, lm, batch, oracle.of_others(3, L, p == 0))


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_groups_of_a_batch_are_batches_of_their_own(lm, p):
    """Loss and gradients are the means of a loop over groups, each read as its own draw of local
    memory says.
    """
    method = METHODS.load("trime-ext")(TrimeExtConfig(local_dropout=p, groups=3))
    members = [[6, 0], [3, 5], [1, 2]]
    index = BatchIndex(number=3, update=50, updates=100, seed=0)
    batch = method.batch(split(), np.concatenate(members), index)
    loss = method.loss(lm, batch, Carried()).mean
    losses = []
    for group, segments in enumerate(members):
        local = bool(batch.local[2 * group])
        alone = METHODS.load("trime-ext")(TrimeExtConfig(local_dropout=0.0 if local else 1.0))
        part = alone.batch(split(), np.array(segments), LATE)
        agree(alone, lm, part, oracle.of_others(2, L, local))
        losses.append(alone.loss(lm, part, Carried())[0])
    parameters = list(lm.parameters())
    got, expected = (
        torch.autograd.grad(made, parameters, allow_unused=True)
        for made in (loss, torch.stack(losses).mean())
    )
    torch.testing.assert_close(loss, torch.stack(losses).mean())
    torch.testing.assert_close(got, expected)


def test_each_group_draws_whether_it_reads_local_memory():
    method = METHODS.load("trime-ext")(TrimeExtConfig(local_dropout=0.7, groups=2))
    turns = [BatchIndex(number, number, 1000, 0) for number in range(1000)]
    drawn = np.array(
        [method.batch(split(), np.array([0, 1, 2, 3]), index).local.tolist() for index in turns]
    )
    assert (drawn[:, [0, 2]] == drawn[:, [1, 3]]).all()
    assert 0.26 < drawn.mean() < 0.34 and abs(np.corrcoef(drawn[:, 0], drawn[:, 2])[0, 1]) < 0.1


@pytest.mark.parametrize(
    ("groups", "processes", "nearest"), [(3, 1, 2), (9, 1, 6), (6, 4, 4), (12, 2, 6)]
)
def test_groups_are_equal_parts_of_two_segments_or_more_and_whole_on_a_process(
    groups, processes, nearest
):
    with pytest.raises(UsageError, match=rf"memory\.groups.*\b{groups}\b.*\b{nearest}\b"):
        TrimeExtConfig(groups=groups).complete(
            TransformerConfig(), Batches(16 if groups == 3 else 12, processes)
        )
    assert (
        TrimeExtConfig(groups=4).complete(TransformerConfig(), Batches(12, processes)).groups == 4
    )


@pytest.mark.parametrize("groups", [None, 1])
def test_a_batch_that_is_one_group_is_settled_as_such(groups):
    assert TrimeExtConfig(groups=groups).complete(TransformerConfig(), Batches(4)).groups == 1


def test_nothing_to_read_is_the_plain_loss(lm):
    method = METHODS.load("trime-ext")(TrimeExtConfig(local_dropout=1.0))
    batch = method.batch(split(), np.array([3]), LATE)
    torch.testing.assert_close(
        method.loss(lm, batch, Carried())[0],
        lm.loss(lm.encode(batch.inputs).hidden.flatten(0, 1), batch.targets.flatten()),
    )


@pytest.mark.parametrize("name", TRIME)
def test_the_first_updates_minimize_the_plain_loss(lm, name):
    method = METHODS.load(name)(
        METHODS.settings(name)(warmup=0.05).complete(TransformerConfig(), Batches(2))
    )
    plain = [
        method.batch(split(), np.array([0, 1]), BatchIndex(number, number, 100, 0)).plain
        for number in range(7)
    ]
    assert plain == [True] * 5 + [False] * 2
    batch = method.batch(split(), np.array([0, 1]), BatchIndex(0, 0, 100, 0))
    expected = lm.loss(lm.encode(batch.inputs).hidden.flatten(0, 1), batch.targets.flatten())
    torch.testing.assert_close(method.loss(lm, batch, Carried())[0], expected)


def test_local_memory_is_dropped_as_often_as_asked_and_again_in_a_run_that_goes_on():
    method = METHODS.load("trime-ext")(TrimeExtConfig(local_dropout=0.7))

    def draws(seed):
        turns = [BatchIndex(number, number, 2000, seed) for number in range(2000)]
        return [bool(method.batch(split(), np.array([0]), index).local) for index in turns]

    assert draws(0) == draws(0) != draws(1)
    assert 0.26 < np.mean(draws(0)) < 0.34


def test_runs_of_consecutive_segments_stay_together():
    method = METHODS.load("trime-long")(TrimeLongConfig(consecutive=3))
    seen = set()
    for epoch in range(30):
        order = method.order(count=23, size=6, seed=1, epoch=epoch)
        assert order.shape == (3, 6) and len(set(order.flatten())) == 18 and order.max() < 23
        assert (np.diff(order.reshape(-1, 3), axis=1) == 1).all()
        seen.add(order[0, 0] % 3)
    assert len(seen) == 3


def test_batches_are_neighbours_in_the_packing():
    packing = np.random.default_rng(0).permutation(23)
    method = METHODS.load("trime-ext")(TrimeExtConfig(), {"batches": packing})
    place = np.argsort(packing)
    batches = set()
    for epoch in range(5):
        order = method.order(count=23, size=4, seed=1, epoch=epoch)
        assert order.shape == (5, 4) and len(set(order.flatten())) == 20
        assert (np.diff(place[order], axis=1) == 1).all()
        batches.add(tuple(order[0]))
    assert len(batches) > 1
    assert np.array_equal(method.order(23, 4, 1, 0), method.order(23, 4, 1, 0))


def test_groups_are_neighbours_in_the_packing():
    packing = np.random.default_rng(0).permutation(47)
    method = METHODS.load("trime-ext")(TrimeExtConfig(groups=3), {"batches": packing})
    place = np.argsort(packing)
    order = method.order(count=47, size=12, seed=1, epoch=0)
    assert order.shape == (3, 12) and len(set(order.flatten())) == 36
    groups = place[order].reshape(9, 4)
    assert (np.diff(groups, axis=1) == 1).all()
    assert any((np.diff(batch[:, 0]) != 4).any() for batch in groups.reshape(3, 3, 4))


def test_validation_reads_local_memory(lm):
    method = METHODS.load("trime")(TrimeConfig())
    batch = method.batch(split(), np.array([2, 3]), LATE)

    class EncodedTokens:
        targets = batch.targets.flatten()
        key = staticmethod(lambda name: lm.encode(batch.inputs).key(name).flatten(0, 1))

    starts = torch.tensor([0] * L + [L] * L)
    with torch.no_grad():
        log_p = method.log_prob(lm, EncodedTokens, starts)
        torch.testing.assert_close(
            -log_p.mean(), method.loss(lm, batch, Carried())[0], rtol=1e-5, atol=1e-5
        )


class TestStreams:
    """A backbone that carries state."""

    @pytest.fixture(params=["lstm", "transformer-xl", *REMEMBERING])
    def recurrent(self, request):
        return model(request.param)

    @pytest.mark.parametrize("name", ["trime", "trime-ext"])
    def test_begin_anew_at_each_segment(self, recurrent, name):
        method = METHODS.load(name)(METHODS.settings(name)(key="hidden"))
        assert not method.layout(recurrent.config).streams
        batch = method.batch(split(), np.array([1, 4]), LATE)
        cells = (
            oracle.local(2, L) if name == "trime" else oracle.of_others(2, L, bool(batch.local[0]))
        )
        agree(method, recurrent, batch, cells, key="hidden")

    def test_remember_the_segments_before_as_they_were(self, recurrent):
        settings = TrimeLongConfig(consecutive=3, scope="stream", key="hidden")
        method = METHODS.load("trime-long")(settings)
        assert method.layout(recurrent.config).streams
        carried, constants, values = Carried(), [], []
        for index in range(4):
            batch = method.batch(split(), np.array([index, 4 + index]), LATE)
            encoding = recurrent.encode(batch.inputs, carried.state)
            loss, carried, _ = method.loss(recurrent, batch, carried)
            parameters = list(recurrent.parameters())
            got = torch.autograd.grad(
                loss, parameters, allow_unused=True
            )  # compression learns by a loss of its own
            expected = self.with_past(recurrent, encoding, batch, constants[-2:], values[-2:])
            torch.testing.assert_close(loss, expected)
            torch.testing.assert_close(
                got, torch.autograd.grad(expected, parameters, allow_unused=True)
            )
            carried = carried.each(torch.Tensor.detach)
            constants.append(encoding.hidden.detach())
            values.append(batch.targets)

    def with_past(self, recurrent, encoding, batch, constants, values):
        """The oracle's loss, of rows that begin with the constant segments before; those have no
        loss of their own.
        """
        before = sum(part.shape[1] for part in constants)
        keys = torch.cat((*constants, encoding.hidden), 1)
        targets = torch.cat((*values, batch.targets), 1)
        hidden = encoding.hidden.flatten(0, 1)
        log_p = (
            _dense(recurrent, hidden)
            .gather(1, batch.targets.flatten()[:, None])
            .view_as(batch.targets)
        )
        log_z = _head_log_z(recurrent, hidden).view_as(batch.targets)
        pad = torch.zeros(2, before, dtype=log_p.dtype)
        cells = {at: read for at, read in oracle.local(2, before + L).items() if at[1] >= before}
        return oracle.joint_loss(
            torch.cat((pad, log_p), 1), torch.cat((pad, log_z), 1), keys, targets, cells
        )

    def test_have_two_consecutive_segments_unless_told_otherwise(self):
        assert TrimeLongConfig().complete(LSTMConfig(), Batches(20)).consecutive == 2


@pytest.mark.parametrize(
    ("consecutive", "processes", "nearest"), [(9, 1, 8), (5, 1, 4), (8, 2, 4), (3, 4, 2)]
)
def test_consecutive_segments_divide_what_a_process_has_of_a_batch(consecutive, processes, nearest):
    with pytest.raises(UsageError, match=rf"memory\.consecutive.*\b{consecutive}\b.*\b{nearest}\b"):
        TrimeLongConfig(consecutive=consecutive).complete(
            TransformerConfig(), Batches(8, processes)
        )


WIKITEXT_2 = {"borders": 256 / 3481}
"""Segments of 256 tokens, and articles of 3,481."""


@pytest.mark.parametrize(
    ("batches", "consecutive"),
    [
        (Batches(16, **WIKITEXT_2), 2),
        (Batches(16, accumulate=2, **WIKITEXT_2), 4),
        (Batches(16, accumulate=8), 16),
        (Batches(16), 2),
        (Batches(16, processes=4, accumulate=2), 4),
        (Batches(12, processes=2, accumulate=2, **WIKITEXT_2), 3),
        (Batches(8, borders=3072 / 3481), 8),
        (Batches(4), 2),
        (Batches(7), 7),
        (Batches(1), 1),
        (Batches(2, processes=2), 1),
    ],
)
def test_runs_are_as_long_as_leaves_an_update_eight_documents(batches, consecutive):
    assert TrimeLongConfig().complete(TransformerConfig(), batches).consecutive == consecutive


@pytest.mark.parametrize(
    ("batches", "groups"),
    [
        (Batches(16, **WIKITEXT_2), 1),
        (Batches(16, same_document=0.86, **WIKITEXT_2), 8),
        (Batches(16, accumulate=2, same_document=0.95, **WIKITEXT_2), 2),
        (Batches(16, same_document=0.5, **WIKITEXT_2), 1),
        (Batches(16, same_document=0.001, **WIKITEXT_2), 1),
        (Batches(16, processes=4, accumulate=4, same_document=1.0), 4),
        (Batches(4), 1),
        (Batches(4, same_document=1.0), 2),
    ],
)
def test_groups_are_as_large_as_leaves_an_update_eight_documents(batches, groups):
    assert TrimeExtConfig().complete(TransformerConfig(), batches).groups == groups


@pytest.mark.parametrize(
    ("groups", "same", "measured"),
    [
        (1, 1, 2.2),
        (4, 1, 5.0),
        (8, 1, 9.0),
        (1, 0.86, 3.7),
        (4, 0.86, 6.8),
        (1, 0.001, 17.1),
        (4, 0.001, 16.8),
    ],
)
def test_documents_of_an_update_are_about_those_measured(groups, same, measured):
    """Runs and packed groups of 16 segments of WikiText-2: docs/results/trime.md, "Batches of few
    documents".
    """
    assert Batches(16, **WIKITEXT_2).documents(groups, same) == pytest.approx(measured, abs=0.7)


def test_the_plain_updates_are_whole_ones():
    method = METHODS.load("trime")(TrimeConfig(warmup=0.05))
    turns = [BatchIndex(number, number // 3, 30, 0) for number in range(9)]
    assert [method.batch(split(), np.array([0]), index).plain for index in turns] == [True] * 6 + [
        False
    ] * 3
