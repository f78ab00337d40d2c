"""An open book before texts from outside a corpus: continued, scored and inspected."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.examples.cutting import WindowSettings
from stages.examples.examples import Batch
from stages.generation.continuations import ContinuationScorer
from stages.generation.session import TextSession
from stages.inspection.inspect import inspect_split
from stages.inspection.reading import MemoryReader, load_reader
from stages.inspection.request import Request, find
from stages.models.weights import load_model
from stages.open_book.passages import cut_passages
from tests.oracles.passages import lucene_scores
from tests.stages.slow_evaluation import evaluated
from tests.stages.small_store import array, small_model, small_tokens

CONTEXT, STRIDE, QUERY, PASSAGE = 14, 3, 4, 5


@pytest.fixture
def tokens(store: Store) -> Artifact:
    return small_tokens(store)


@pytest.fixture
def report(store: Store, tokens: Artifact) -> Artifact:
    return evaluated(
        store,
        small_model(store, tokens),
        "none",
        references={"open_book": tokens},
        context=CONTEXT,
        open_book={"stride": STRIDE, "query": QUERY, "passage": PASSAGE},
    )


def reader_of(store: Store, report: Artifact) -> MemoryReader:
    request = Request(source=report.input("model").reference, report=report.reference)
    return load_reader(find(request, store, None), request)


def slow_log_p(report: Artifact, ids: Sequence[int], start: int) -> np.ndarray:
    """Log-probabilities of every token behind `ids`, of which those from `start` on are in strides
    of their own, float64 [V].
    """
    book = report.input("open_book")
    text = array(book, "tokens.zarr", "train/ids").astype(np.int64)
    offsets = array(book, "tokens.zarr", "train/doc_offsets")
    paragraphs = array(book, "tokens.zarr", "train/paragraph_ends")
    bounds = cut_passages(offsets, paragraphs, PASSAGE).bounds
    texts = [passage.tolist() for passage in np.split(text, bounds[1:-1])]

    first = len(ids) - (len(ids) - start) % STRIDE
    scores = np.array(lucene_scores(ids[max(0, first - QUERY) : first], texts))
    passage = texts[int(scores.astype(np.float32).argmax())] if scores.max() > 0 else []
    begin = max(0, first + STRIDE - (CONTEXT - PASSAGE))
    inputs = torch.tensor([[*passage, *[0, *ids][begin:]]])
    model = load_model(report.input("model").path, "cpu", WindowSettings(CONTEXT, CONTEXT))
    batch = Batch(inputs=inputs, targets=inputs, places=np.zeros_like(inputs))
    with torch.no_grad():
        model = model.double()
        return model.log_probs(model.read(batch, None).hidden[0, -1:])[0].numpy()


def test_what_is_written_reads_the_passage_that_its_latest_tokens_find(
    store: Store, report: Artifact
) -> None:
    prompt = [3, 5, 2, 7, 4, 9]
    session = TextSession(reader_of(store, report))
    text = session.add(prompt)
    ids = list(prompt)
    for _ in range(7):
        (log_p,) = session.step([text])
        np.testing.assert_allclose(log_p, slow_log_p(report, ids, len(prompt)), atol=1e-5)
        ids.append(int(log_p.argmax()))
        session.put([text], ids[-1:])


def test_a_continuation_is_scored_behind_the_passage_that_its_context_finds(
    store: Store, report: Artifact
) -> None:
    context = [4, 2, 8, 6, 3]
    continuation = [5, 9, 2, 2, 10]
    log_p, _ = ContinuationScorer(reader_of(store, report)).score(context, continuation)
    for number, token in enumerate(continuation):
        before = [*context, *continuation[:number]]
        want = slow_log_p(report, before, len(context))[token]
        assert log_p[number] == pytest.approx(want, abs=1e-5)


def test_inspect_quotes_the_passages_of_the_report(store: Store, report: Artifact) -> None:
    request = Request(source=report.input("model").reference, report=report.reference)
    inspected = inspect_split(request, store, "test", 10, 9, 0)
    numbers = array(report, "scores.zarr", "passage")
    scores = array(report, "scores.zarr", "passage_score")
    documents = array(report, "scores.zarr", "passage_document")
    covered = []
    for passage in inspected.passages:
        for place in range(passage.start, passage.stop):
            assert passage.number == numbers[place]
            assert passage.score == pytest.approx(scores[place])
            assert passage.source.document == documents[place]
            covered.append(place)
    assert covered == list(range(10, 19))
    found = inspected.to_json()["passages"][0]
    assert found["text"].split()[0] == found["source"]["token"].strip()
