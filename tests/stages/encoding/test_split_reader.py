import numpy as np
import pytest
import torch

from stages.encoding.split_reader import SplitReader
from stages.examples.corpus import Corpus
from stages.examples.cutting import WindowSettings
from stages.examples.windows import Window
from tests.stages.encoding.fake_model import AddingModel, FakeModel

EOS, TOTAL = 0, 20
IDS = np.arange(TOTAL) % 9 + 1
GROUP = {"test/ids": IDS, "test/doc_offsets": np.array([0, 7, 11, TOTAL])}


def reader(by_document: bool, context: int = 6, stride: int = 4) -> SplitReader:
    windows = WindowSettings(context, stride)
    return SplitReader(Corpus(GROUP, EOS), windows, by_document, torch.device("cpu"), "fp32")


def encoded(one: SplitReader, model: FakeModel, start: int, stop: int) -> np.ndarray:
    return torch.cat([block.hidden for block in one.encode(model, "test", start, stop)]).numpy()


def test_places_are_the_documents_of_tokens_and_the_windows_that_score_them():
    places = reader(False).places("test", 5, 12)
    assert places.document_starts.tolist() == [0, 0, 7, 7, 7, 7, 11]
    assert places.windows == [Window(0, 6, 0), Window(4, 10, 6), Window(8, 14, 10)]


def test_by_document_no_window_holds_two_documents():
    places = reader(True).places("test", 5, 12)
    assert places.document_starts.tolist() == [0, 0, 7, 7, 7, 7, 11]
    assert places.windows == [Window(0, 6, 0), Window(4, 7, 6), Window(7, 11, 7), Window(11, 17, 11)]


@pytest.mark.parametrize("by_document", [False, True])
def test_tokens_are_encoded_in_the_windows_that_places_tells(by_document):
    one = reader(by_document)
    seen = encoded(one, FakeModel(10), 3, 17)[:, 1]
    places = one.places("test", 3, 17)
    inside = [t - w.start + 1 for w in places.windows for t in range(max(3, w.scored_from), min(17, w.stop))]
    assert seen.tolist() == inside


@pytest.mark.parametrize("by_document", [False, True])
def test_a_state_begins_anew_at_documents_only_where_that_is_asked_for(by_document):
    inputs = np.concatenate([[EOS], IDS[:-1]])
    sums = encoded(reader(by_document), AddingModel(10), 0, TOTAL)[:, 2]
    starts = reader(by_document).places("test", 0, TOTAL).document_starts if by_document else np.zeros(TOTAL, int)
    want = [inputs[start : at + 1].sum() / 10 for at, start in enumerate(starts)]
    np.testing.assert_allclose(sums, want, rtol=1e-6)
