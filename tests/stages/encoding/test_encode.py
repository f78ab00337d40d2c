"""None"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from stages.encoding.encode import SplitReader
from stages.encoding.encode import encode as encoded
from stages.examples.cutting import WindowSettings
from stages.examples.examples import Corpus
from stages.examples.streams import Streams
from stages.examples.windows import Window, windows
from stages.models.backbones.stream_configs import TransformerXLConfig
from stages.models.language_model import LanguageModel
from stages.models.layers.memory_settings import MemorizingSettings
from tests.stages.encoding.fake_model import AddingModel, FakeModel

EOS = 9


def encode(
    ids,
    start,
    stop,
    model=None,
    *,
    context=4,
    stride=2,
    batch_tokens=8,
    documents=None,
    by_document=False,
    **how,
):
    model = model or FakeModel(10)
    cutting = model.config.cutting(WindowSettings(context, stride), by_document)
    examples = Streams(
        ids, EOS, cutting, np.array([0, ids.shape[0]]) if documents is None else documents
    )
    return list(encoded(model, examples.blocks(start, stop, batch_tokens), **how))


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


def test_gradients_flow_into_the_model_where_they_are_asked_for():
    model = segmented()
    for block in encode(np.arange(8), 0, 8, model, gradients=True):
        block.hidden.sum().backward()
    assert all(parameter.grad is not None for parameter in model.backbone.parameters())


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
    blocks = encode(ids, 0, 5, documents=np.array([0, 2, 5]), by_document=True)
    rows = [tuple(r) for b in blocks for r in b.hidden.tolist()]
    assert rows == [(EOS, 1, EOS), (1, 2, EOS + 1), (2, 1, 2), (3, 2, 5), (4, 3, 9)]


def segmented():
    """A Transformer-XL, whose segments and cached positions a range takes over from the one before."""
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 10,
        "width": 8,
        "heads": 2,
        "ffn_width": 8,
        "segment_length": 4,
        "mem_length": 5,
    }
    return LanguageModel(TransformerXLConfig(**sizes)).double().eval()


@given(cut=st.integers(1, 29), batch_tokens=st.integers(1, 40))
@hypothesis_settings(max_examples=15, deadline=None)
def test_ranges_that_hand_on_their_state_are_one_pass(cut, batch_tokens):
    model, ids, state, hidden = segmented(), np.arange(30) * 7 % 9, None, []
    for start, stop in ((0, cut), (cut, 30)):
        for block in encode(ids, start, stop, model, batch_tokens=batch_tokens, state=state):
            hidden.append(block.hidden)
            state = block.state
    with torch.no_grad():
        whole = model.encode(torch.tensor([[EOS, *ids[:-1]]])).hidden[0]
    torch.testing.assert_close(torch.cat(hidden), whole)


def test_segments_are_counted_from_the_start_of_a_document():
    model, ids, documents = segmented(), np.arange(30) * 7 % 9, np.array([0, 6, 13, 30])
    hidden = torch.cat(
        [block.hidden for block in encode(ids, 0, 30, model, documents=documents, by_document=True)]
    )
    for start, stop in ((6, 13), (13, 30)):
        with torch.no_grad():
            alone = model.encode(torch.from_numpy(ids[None, start - 1 : stop - 1])).hidden[0]
        torch.testing.assert_close(hidden[start:stop], alone)


def test_a_model_that_reads_documents_finds_nothing_of_another():
    """In blocks, from the middle of a split on: as one pass that is given how far back each
    document reaches.
    """
    torch.manual_seed(0)
    attention = MemorizingSettings(long_length=12, neighbors=2)
    sizes = {
        "vocab_size": 10,
        "width": 8,
        "heads": 2,
        "segment_length": 4,
        "mem_length": 4,
        "attention": attention,
    }
    model = LanguageModel(TransformerXLConfig(**sizes)).eval()
    ids, origins = np.random.default_rng(0).integers(0, 9, 30), np.array([0, 5, 19, 30])
    first = encode(ids, 0, 13, model, documents=origins)
    rest = encode(ids, 13, 30, model, documents=origins, state=first[-1].state)
    with torch.no_grad():
        inputs = torch.tensor([[EOS, *ids[:-1]]])
        back = torch.tensor([[*range(5), *range(14), *range(11)]])
        whole, across = model.encode(inputs, None, back), model.encode(inputs)
    torch.testing.assert_close(torch.cat([block.hidden for block in first + rest]), whole.hidden[0])
    assert not torch.allclose(whole.hidden, across.hidden)


EOS, TOTAL = 0, 20
IDS = np.arange(TOTAL) % 9 + 1
GROUP = {"test/ids": IDS, "test/doc_offsets": np.array([0, 7, 11, TOTAL])}


def reader(by_document: bool, context: int = 6, stride: int = 4) -> SplitReader:
    windows = WindowSettings(context, stride)
    return SplitReader(Corpus(GROUP, EOS), windows, by_document, torch.device("cpu"), "fp32")


def read_by(one: SplitReader, model: FakeModel, start: int, stop: int) -> np.ndarray:
    return torch.cat([block.hidden for block in one.encode(model, "test", start, stop)]).numpy()


def test_places_are_the_documents_of_tokens_and_the_windows_that_score_them():
    places = reader(False).places("test", 5, 12)
    assert places.document_starts.tolist() == [0, 0, 7, 7, 7, 7, 11]
    assert places.windows == [Window(0, 6, 0), Window(4, 10, 6), Window(8, 14, 10)]


def test_by_document_no_window_holds_two_documents():
    places = reader(True).places("test", 5, 12)
    assert places.document_starts.tolist() == [0, 0, 7, 7, 7, 7, 11]
    assert places.windows == [
        Window(0, 6, 0),
        Window(4, 7, 6),
        Window(7, 11, 7),
        Window(11, 17, 11),
    ]


@pytest.mark.parametrize("by_document", [False, True])
def test_tokens_are_encoded_in_the_windows_that_places_tells(by_document):
    one = reader(by_document)
    seen = read_by(one, FakeModel(10), 3, 17)[:, 1]
    places = one.places("test", 3, 17)
    inside = [
        t - w.start + 1
        for w in places.windows
        for t in range(max(3, w.scored_from), min(17, w.stop))
    ]
    assert seen.tolist() == inside


@pytest.mark.parametrize("by_document", [False, True])
def test_a_state_begins_anew_at_documents_only_where_that_is_asked_for(by_document):
    inputs = np.concatenate([[EOS], IDS[:-1]])
    sums = read_by(reader(by_document), AddingModel(10), 0, TOTAL)[:, 2]
    starts = (
        reader(by_document).places("test", 0, TOTAL).document_starts
        if by_document
        else np.zeros(TOTAL, int)
    )
    want = [inputs[start : at + 1].sum() / 10 for at, start in enumerate(starts)]
    np.testing.assert_allclose(sums, want, rtol=1e-6)
