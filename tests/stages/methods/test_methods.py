import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from stages.errors import UsageError
from stages.examples.batching import aligned_order
from stages.examples.cutting import Cutting
from stages.examples.streams import Streams
from stages.methods import METHODS
from stages.methods.method import BatchIndex, Carried, Loss
from stages.methods.settings import LmConfig
from stages.models.backbone import Encoding
from stages.models.backbones.stream_configs import LSTMConfig
from stages.models.backbones.window_configs import TransformerConfig
from stages.models.language_model import LanguageModel

EOS = 9
TURN = BatchIndex(0, 0, 1, 0)


@pytest.fixture
def lm():
    return METHODS.load("lm")(LmConfig())


def test_segments_are_cut_at_multiples_and_the_rest_is_left_out():
    split = Streams(np.arange(10, 24, dtype=np.uint16), EOS, Cutting("windows", 4, 4))
    batch = split.batch(np.array([0, 2]))
    assert split.count == 3
    assert batch.inputs.tolist() == [[EOS, 10, 11, 12], [17, 18, 19, 20]]
    assert batch.targets.tolist() == [[10, 11, 12, 13], [18, 19, 20, 21]]
    assert batch.places.tolist() == [[0, 1, 2, 3], [8, 9, 10, 11]]
    assert batch.inputs.dtype == batch.targets.dtype == torch.int64


def test_documents_that_segments_hold_parts_of():
    """Documents of 3, 7, none and 5 tokens; segments of 4."""
    split = Streams(np.arange(15), EOS, Cutting("windows", 4, 4), np.array([0, 3, 10, 10, 15]))
    assert [split.documents_in(np.array([segment])).tolist() for segment in range(3)] == [
        [0, 1],
        [1],
        [1, 2, 3],
    ]
    assert split.documents_in(np.array([1, 0])).tolist() == [0, 1]
    assert Streams(np.arange(15), EOS, Cutting("windows", 4, 4)).documents_in(
        np.array([0, 2])
    ).tolist() == [0]


def test_order_depends_on_seed_and_epoch_and_repeats_no_segment(lm):
    order = lm.order(count=23, size=4, seed=1, epoch=0)
    assert order.shape == (5, 4)
    assert len(set(order.flatten())) == 20
    assert order.max() < 23
    assert np.array_equal(order, lm.order(23, 4, 1, 0))
    assert not np.array_equal(order, lm.order(23, 4, 1, 1))
    assert not np.array_equal(order, lm.order(23, 4, 2, 0))


@given(st.integers(1, 60), st.data())
def test_aligned_rows_are_streams_that_go_on(segments, data):
    size = data.draw(st.integers(1, segments))
    order = aligned_order(segments, size)
    assert order.shape == (segments // size, size)
    assert (np.diff(order, axis=0) == 1).all()
    assert sorted(order.flatten()) == list(range(order.size))


def test_state_is_carried_where_the_backbone_does(lm):
    assert lm.layout(LSTMConfig()).streams
    assert not lm.layout(TransformerConfig()).streams


def test_loss_goes_on_from_the_state_that_is_handed_in(lm):
    torch.manual_seed(0)
    model = LanguageModel(LSTMConfig(vocab_size=30, width=8)).eval()
    split = Streams(np.arange(10, 26), EOS, Cutting("windows", 4, 4))
    first, second = (lm.batch(split, np.array(segments), TURN) for segments in ([0, 2], [1, 3]))
    a, carried, _ = lm.loss(model, first, Carried())
    whole = lm.batch(
        Streams(np.arange(10, 26), EOS, Cutting("windows", 8, 8)), np.array([0, 1]), TURN
    )
    both = (a + lm.loss(model, second, carried)[0]) / 2
    torch.testing.assert_close(both, lm.loss(model, whole, Carried())[0])


def test_loss_is_the_mean_cross_entropy_of_all_targets(lm):
    torch.manual_seed(0)
    config = TransformerConfig(vocab_size=30, width=8, heads=2, ffn_width=8, max_positions=4)
    model = LanguageModel(config).eval()
    batch = lm.batch(
        Streams(np.arange(10, 24), EOS, Cutting("windows", 4, 4)), np.array([0, 2]), TURN
    )
    scores = model.log_probs(model.encode(batch.inputs).hidden.flatten(0, 1))
    loss, state, _ = lm.loss(model, batch, Carried())
    torch.testing.assert_close(loss, F.nll_loss(scores, batch.targets.flatten()))
    assert not state.tensors()


def test_a_loss_adds_what_layers_and_the_method_add():
    encodings = [
        Encoding(torch.zeros(1, 1, 4), None, auxiliary_loss=torch.tensor(0.25)),
        Encoding(torch.zeros(1, 1, 4), None),
    ]
    loss = Loss.of(torch.tensor(2.0), *encodings, auxiliary=[torch.tensor(0.5)])
    assert (loss.mean, loss.total) == (2, 2.75)


def test_unknown_methods_bring_the_nearest():
    with pytest.raises(UsageError, match="'lm'"):
        METHODS.load("llm")
