"""Evaluations with passages before the context."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.errors import ArtifactError, UsageError
from stages.examples.cutting import WindowSettings
from stages.examples.examples import Batch
from stages.index import BuildIndex, IndexConfig
from stages.models.weights import load_model
from stages.open_book.book import Book
from stages.open_book.passages import cut_passages
from stages.open_book.settings import OpenBook
from tests.oracles.passages import lucene_scores
from tests.stages.slow_evaluation import evaluated, metrics
from tests.stages.small_store import VOCABULARY, array, remembering, small_model, small_tokens

LENGTHS = {"train": 150, "valid": 60, "test": 100}
CONTEXT, STRIDE, QUERY, PASSAGE = 13, 3, 5, 4
BOOK = {"stride": STRIDE, "query": QUERY, "passage": PASSAGE}


@pytest.fixture
def tokens(store: Store) -> Artifact:
    return small_tokens(store, lengths=LENGTHS)


@pytest.fixture
def model(store: Store, tokens: Artifact) -> Artifact:
    return small_model(store, tokens)


def opened(
    store: Store, model: Artifact, book: Artifact, *memory: str, **settings: Any
) -> Artifact:
    """A report of the model with a book."""
    given = {"context": CONTEXT, "open_book": BOOK, **settings}
    return evaluated(store, model, *(memory or ("none",)), references={"open_book": book}, **given)


def passages_of(book: Artifact) -> list[list[int]]:
    ids = array(book, "tokens.zarr", "train/ids").astype(np.int64)
    offsets = array(book, "tokens.zarr", "train/doc_offsets")
    paragraphs = array(book, "tokens.zarr", "train/paragraph_ends")
    bounds = cut_passages(offsets, paragraphs, PASSAGE).bounds
    return [passage.tolist() for passage in np.split(ids, bounds[1:-1])]


def slow_scores(
    model: Artifact, book: Artifact | None, split: str, hidden: Sequence[set[int]] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """log p of every token, and the passage of its stride: each stride is read anew, in float64.

    Args:
        hidden: passages that each stride may not find.
    """
    tokens = model.input("tokens")
    ids = array(tokens, "tokens.zarr", f"{split}/ids").astype(np.int64)
    stream = np.append(tokens.metrics["eos_id"], ids)
    network = load_model(model.path, "cpu", WindowSettings(CONTEXT, CONTEXT)).double()
    texts = [] if book is None else passages_of(book)
    log_p = []
    chosen = []
    for number, start in enumerate(range(0, len(ids), STRIDE)):
        query = ids[max(0, start - QUERY) : start].tolist()
        scores = np.array(lucene_scores(query, texts)) if texts else np.zeros(1)
        scores[list(hidden[number]) if hidden else []] = 0
        best = int(scores.astype(np.float32).argmax()) if scores.max() > 0 else -1
        stop = min(start + STRIDE, len(ids))
        first = max(0, start + STRIDE - (CONTEXT - PASSAGE))
        row = [*(texts[best] if best >= 0 else []), *stream[first:stop].tolist()]
        inputs = torch.tensor([row])
        batch = Batch(inputs=inputs, targets=inputs, places=np.zeros_like(inputs))
        with torch.no_grad():
            hidden_states = network.read(batch, None).hidden[0]
        distributions = network.log_probs(hidden_states[-(stop - start) :])
        log_p += distributions[torch.arange(stop - start), ids[start:stop]].tolist()
        chosen += [best] * (stop - start)
    return np.array(log_p), np.array(chosen)


@pytest.mark.usefixtures("short_shards")
def test_scores_are_those_of_strides_that_are_read_anew(
    store: Store, tokens: Artifact, model: Artifact
) -> None:
    report = opened(store, model, tokens)
    want, chosen = slow_scores(model, tokens, "test")
    assert array(report, "scores.zarr", "passage").tolist() == chosen.tolist()
    np.testing.assert_allclose(array(report, "scores.zarr", "logp"), want, atol=1e-5)
    shorter, _ = slow_scores(model, None, "test")
    np.testing.assert_allclose(array(report, "scores.zarr", "logp_shorter"), shorter, atol=1e-5)
    assert np.abs(shorter - want).max() > 0.05, "passages change what is predicted"

    plain = evaluated(store, model, "none", context=CONTEXT)
    of_plain = array(plain, "scores.zarr", "logp")
    np.testing.assert_allclose(array(report, "scores.zarr", "logp_plain"), of_plain, atol=1e-6)

    told = metrics(report)
    names = [row["row"] for row in told["rows"]]
    assert names == ["open book", "shorter window, no passage"]
    assert told["perplexity"] == pytest.approx(np.exp(-want.mean()), rel=1e-5)
    assert told["rows"][1]["perplexity"] == pytest.approx(np.exp(-shorter.mean()), rel=1e-5)
    assert told["baseline"]["row"]["perplexity"] == metrics(plain)["perplexity"]
    assert {row["row"] for row in told["change_intervals"]["rows"]} == set(names)
    strides = chosen[::STRIDE]
    lengths = [len(passages_of(tokens)[one]) for one in strides if one >= 0]
    context = [min(start + STRIDE, CONTEXT - PASSAGE) for start in range(0, 99, STRIDE)] + [7]
    book = told["open_book"]
    assert book["without_passage"] == (strides < 0).sum() and book["strides"] == len(strides)
    read = book["forward_tokens"]
    assert read["open book"] == (sum(lengths) + sum(context)) / 100
    assert read["shorter window, no passage"] == sum(context) / 100
    assert read["plain"] == 1
    assert told["rows"][0]["searches_per_token"] == 1 / STRIDE


def test_readings_stand_on_top_and_all_conditions_hold(
    store: Store, tokens: Artifact, model: Artifact
) -> None:
    datastore = make(
        BuildDatastore(),
        DatastoreConfig(context=8),
        {"source": model.reference},
        store,
        Execution(),
    ).artifact
    index = make(
        BuildIndex(), IndexConfig(index="flat"), {"source": datastore.reference}, store, Execution()
    ).artifact
    memory = ("external:k=4,lambda=tune,temperature=1", "long:size=20,lambda=0.2,theta=1")
    alone = opened(store, model, tokens)
    for by in ("bm25", "keys"):
        report = opened(store, index, tokens, *memory, open_book={**BOOK, "by": by})
        told = metrics(report)
        names = [row["row"] for row in told["rows"]]
        assert names[0] == "open book" and names[1].startswith("open book then ")
        assert [row["row"] for row in told["conditions"]["rows"]] == names[:-1]
        assert not any(row["broken"] for row in told["conditions"]["rows"])
        below = array(report, "scores.zarr", "logp_lm")
        same = np.allclose(below, array(alone, "scores.zarr", "logp"), atol=1e-6)
        assert same == (by == "bm25")
        assert (array(report, "scores.zarr", "passage") >= 0).mean() > 0.9
        corpora = {text["corpus"] for text in told["rows"][0]["control"]["texts"]}
        assert corpora == {tokens.reference}


def test_a_book_of_the_scored_text_is_refused_or_its_document_is_left_out(
    store: Store, tokens: Artifact, model: Artifact
) -> None:
    with pytest.raises(UsageError, match=r"rows hold the answers.*--exclude document"):
        opened(store, model, tokens, split="train", tune_split="valid")

    report = opened(store, model, tokens, split="train", exclude="document")
    ids = array(tokens, "tokens.zarr", "train/ids")
    document = np.searchsorted(np.arange(0, 150, 9), np.arange(len(ids)), side="right") - 1
    lengths = [len(passage) for passage in passages_of(tokens)]
    starts = np.cumsum([0, *lengths[:-1]])
    passages = document[starts]
    hidden = []
    for start in range(0, len(ids), STRIDE):
        own = set(document[start : start + STRIDE].tolist())
        hidden.append({number for number, one in enumerate(passages) if one in own})
    want, chosen = slow_scores(model, tokens, "train", hidden)
    assert array(report, "scores.zarr", "passage").tolist() == chosen.tolist()
    np.testing.assert_allclose(array(report, "scores.zarr", "logp"), want, atol=1e-5)
    assert array(report, "scores.zarr", "passage_document").tolist() == [
        -1 if one < 0 else passages[one] for one in chosen
    ]
    _, unhidden = slow_scores(model, tokens, "train")
    differ = (chosen != unhidden)[::STRIDE].sum()
    assert metrics(report)["open_book"]["excluded"] == differ > 0


def test_a_book_whose_every_passage_is_excluded_reads_as_a_shorter_window(
    store: Store, model: Artifact, tokens: Artifact
) -> None:
    report = opened(store, model, tokens, split="train", exclude="window:1000")
    scores = array(report, "scores.zarr", "logp")
    assert scores.tobytes() == array(report, "scores.zarr", "logp_shorter").tobytes()
    book = metrics(report)["open_book"]
    assert book["without_passage"] == book["strides"] == book["excluded"] + 1


def test_several_passages_and_windows_of_documents(
    store: Store, model: Artifact, tokens: Artifact
) -> None:
    two = opened(store, model, tokens, open_book={**BOOK, "passage": 3, "passages": 2})
    assert metrics(two)["open_book"]["forward_tokens"]["open book"] == pytest.approx(4.29)
    book = Book.open(tokens, OpenBook(passage=3, passages=2), tokens, "self", None)
    ids = array(tokens, "tokens.zarr", "train/ids")
    best_last = [*ids[6:9], *ids[0:3]]
    assert book.tokens(np.array([0, 2])).tolist() == best_last

    by_document = opened(store, model, tokens, reset="document")
    passage = array(by_document, "scores.zarr", "passage").reshape(-1)
    first_of_documents = [place for place in range(100) if place % 9 < STRIDE]
    assert (passage[first_of_documents] == -1).all(), "nothing was read of the document yet"
    assert not any(row["broken"] for row in metrics(by_document)["conditions"]["rows"])


def test_what_cannot_be_read_is_refused(store: Store, tokens: Artifact, model: Artifact) -> None:
    other = small_tokens(store, tokenizer="other")
    stream = small_model(store, tokens, model=remembering("memorizing"))
    lstm = {"backbone": "lstm", "vocab_size": VOCABULARY, "layers": 1, "width": 8}
    recurrent = small_model(store, tokens, model=lstm)
    refused = [
        ({"book": other}, "tokenized differently.*memlm tokenize"),
        ({"open_book": {"passage": 7}}, r"more than half of the window, 13: .*passage=6"),
        ({"open_book": {**BOOK, "stride": 10}}, r"stride 10 is more than the 9 .*stride=9"),
        ({"open_book": {**BOOK, "by": "keys"}}, "no memory reads one.*--memory knn-lm"),
        ({"memory": "dynamic:rate=0,decay=0"}, "leave --open-book out"),
        ({"memory": "local:theta=1,lambda=0.1"}, "take long"),
        ({"model": stream}, "carries a state, .*take a transformer"),
        ({"model": recurrent}, "carries a state"),
    ]
    for case, message in refused:
        given = {"model": model, "book": tokens, "memory": "none", **case}
        source, book, memory = (given.pop(name) for name in ("model", "book", "memory"))
        if source is not model:
            given["context"] = None
        with pytest.raises((UsageError, ArtifactError), match=message):
            opened(store, source, book, memory, **given)
    with pytest.raises(UsageError, match="--open-book TOKENS"):
        evaluated(store, model, "none", open_book=BOOK)
