import numpy as np
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from stages.evaluation.encode import encode_range
from stages.evaluation.windows import windows
from tests.stages.evaluation.fake_model import FakeModel

EOS = 9


def encode(ids, start, stop, model=None, **settings):
    settings = {
        "context": 4,
        "stride": 2,
        "batch_tokens": 8,
        "device": "cpu",
        "precision": "fp32",
    } | settings
    return list(encode_range(model or FakeModel(10), ids, EOS, start, stop, **settings))


def slow_contexts(ids, context, stride):
    """For each token, the fake model's representation, one window and one token at a time."""
    inputs = [EOS, *ids][: len(ids)]
    rows = []
    for w in windows(len(ids), context, stride):
        for token in range(w.scored_from, w.stop):
            seen = inputs[w.start : token + 1]
            rows.append((seen[-1], len(seen), sum(seen)))
    return rows


@given(
    ids=st.lists(st.integers(0, 8), min_size=1, max_size=40),
    context=st.integers(1, 9),
    data=st.data(),
)
@hypothesis_settings(max_examples=60, deadline=None)
def test_every_token_of_a_range_gets_its_context_once(ids, context, data):
    stride = data.draw(st.integers(1, context))
    start = data.draw(st.integers(0, len(ids)))
    stop = data.draw(st.integers(start, len(ids)))
    batch_tokens = data.draw(st.sampled_from([1, 12, 100]))
    blocks = encode(
        np.array(ids, np.uint16),
        start,
        stop,
        context=context,
        stride=stride,
        batch_tokens=batch_tokens,
    )
    tokens = [t for b in blocks for t in range(b.start, b.stop)]
    assert tokens == list(range(start, stop))
    rows = [tuple(r) for b in blocks for r in b.hidden.tolist()]
    assert rows == slow_contexts(ids, context, stride)[start:stop]
    assert [t for b in blocks for t in b.targets.tolist()] == ids[start:stop]


def test_both_keys_are_given():
    (block,) = encode(np.arange(4), 0, 4)
    torch.testing.assert_close(block.key("hidden"), -block.key("ffn-input"))


def test_full_windows_share_a_forward_pass_and_a_short_one_does_not():
    model = FakeModel(10)
    encode(np.zeros(21, np.uint16), 0, 21, model, context=4, stride=4, batch_tokens=8)
    assert model.calls == [(2, 4), (2, 4), (1, 4), (1, 1)]


def test_no_gradient_is_kept():
    assert not any(b.hidden.requires_grad for b in encode(np.arange(8), 0, 8))


class Watched:
    """An id array that notes which slices are read."""

    def __init__(self, ids):
        self.ids, self.read = ids, []

    @property
    def shape(self):
        return self.ids.shape

    def __getitem__(self, part):
        self.read.append((part.start, part.stop))
        return self.ids[part]


def test_only_the_range_and_its_context_are_read():
    ids = Watched(np.arange(1000) % 8)
    encode(ids, 500, 520)
    assert min(a for a, _ in ids.read) >= 495
    assert max(b for _, b in ids.read) <= 522


def test_documents_are_read_from_the_token_before_them():
    ids = np.array([1, 2, 3, 4, 5])
    blocks = encode(ids, 0, 5, documents=np.array([0, 2, 5]))
    rows = [tuple(r) for b in blocks for r in b.hidden.tolist()]
    assert rows == [(EOS, 1, EOS), (1, 2, EOS + 1), (2, 1, 2), (3, 2, 5), (4, 3, 9)]
