"""The control of each row: a trigram of all the text that the row may read, against dicts, one
token at a time.
"""

import json
from itertools import pairwise
from math import exp, log

import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.evaluate import Evaluate
from stages.evaluation.config import EvaluateConfig
from stages.evaluation.figures import control
from stages.evaluation.figures.control import Counting, Reads
from stages.evaluation.figures.places import LastWords
from stages.index import BuildIndex
from stages.search.config import IndexConfig
from stages.update import UpdateDatastore
from stages.updating.config import UpdateConfig
from tests.builders.limits import limit
from tests.oracles import ngram as slow
from tests.stages.small_store import EOS, VOCABULARY, array, small_model, small_tokens

FIGURES = ("nll", "perplexity", "perplexity_on_new_text")


@pytest.fixture(scope="module")
def read(store: Store) -> dict[str, Artifact]:
    tokens = small_tokens(store)
    return {"model": small_model(store, tokens), "tokens": tokens}


@pytest.fixture(scope="module")
def other(store: Store) -> Artifact:
    """Another text."""
    return small_tokens(store, seed=1)


def made(store: Store, stage, config, **references: Artifact) -> Artifact:
    given = {name: one.reference for name, one in references.items()}
    return make(stage, config, given, store, Execution("cpu")).artifact


def stored(read: dict[str, Artifact], tokens: Artifact, **settings) -> Artifact:
    return made(
        read["model"].store,
        BuildDatastore(),
        DatastoreConfig(**settings),
        source=read["model"],
        tokens=tokens,
    )


def ids_of(tokens: Artifact, split: str) -> list[int]:
    return array(tokens, "tokens.zarr", f"{split}/ids").tolist()


def offsets_of(tokens: Artifact, split: str) -> list[int]:
    return array(tokens, "tokens.zarr", f"{split}/doc_offsets").tolist()


def events(ids: list[int], offsets: list[int] | None = None):
    """Tokens after their contexts, which do not reach out of a document where there are offsets."""
    offsets = [0, len(ids)] if offsets is None else offsets
    pieces = [ids[a:b] for a, b in pairwise(offsets)]
    return [event for piece in pieces for event in slow.events(piece, 3, EOS)]


def by(counted, scored) -> list[float]:
    """Probability of each scored token by what is counted for it."""
    each = [counted(place) for place in range(len(scored))]
    return [
        slow.probability(w, h, known, VOCABULARY)
        for (h, w), known in zip(scored, each, strict=True)
    ]


def perplexity(p: list[float]) -> float:
    return exp(-sum(map(log, p)) / len(p))


@pytest.mark.parametrize("reset", ["none", "document"])
def test_without_memory_it_is_the_trigram_of_the_training_text(read, reset):
    train, test = ids_of(read["tokens"], "train"), ids_of(read["tokens"], "test")
    scored = events(test, offsets_of(read["tokens"], "test") if reset == "document" else None)
    p = by(lambda place: events(train), scored)
    counting = Counting(read, "test", reset=reset)
    found = counting.control(Reads())
    assert found["perplexity"] == pytest.approx(perplexity(p), rel=1e-9)
    assert found["nll"] == pytest.approx(log(found["perplexity"]))
    texts = {"corpus": read["tokens"].reference, "split": "train", "tokens": len(train)}
    assert (found["texts"], found["past"], found["weight"]) == ([texts], None, None)
    assert counting.trigram() == {**texts, **{name: found[name] for name in FIGURES}}


def test_new_text_and_last_words_are_scored_apart(read):
    train, test = ids_of(read["tokens"], "train"), ids_of(read["tokens"], "test")
    outside = np.ones(len(test), bool)
    outside[:4] = False
    p = by(lambda place: events(train), events(test))
    found = Counting(read, "test", outside=outside).control(Reads())
    assert found["perplexity_on_new_text"] == pytest.approx(perplexity(p[4:]), rel=1e-9)
    assert found["perplexity"] == pytest.approx(perplexity(p), rel=1e-9)
    words = {"test": LastWords(np.array([[2, 5], [9, 11]]))}
    found = Counting(read, "test", outside=outside, last_words=words).control(Reads())
    assert found["perplexity"] == pytest.approx(perplexity([*p[2:5], *p[9:11]]), rel=1e-9)
    assert found["perplexity_on_new_text"] == pytest.approx(perplexity([p[4], *p[9:11]]), rel=1e-9)


def test_a_row_with_a_datastore_counts_in_its_rows_too(read, other):
    train, test = ids_of(read["tokens"], "train"), ids_of(read["tokens"], "test")
    half = stored(read, other, fraction=0.5)
    rows = ids_of(other, "train")[:45]
    p = by(lambda place: [*events(train), *events(rows)], events(test))
    found = Counting(read, "test").control(Reads((half,)))
    assert found["perplexity"] == pytest.approx(perplexity(p), rel=1e-9)
    assert [(one["corpus"], one["split"], one["tokens"]) for one in found["texts"]] == [
        (read["tokens"].reference, "train", 90),
        (other.reference, "train", 45),
    ]


def test_what_was_trained_on_and_stored_counts_once(read):
    own = stored(read, read["tokens"], fraction=0.5)
    plain, found = (Counting(read, "test").control(reads) for reads in (Reads(), Reads((own,))))
    assert found == plain


def test_of_a_changed_datastore_the_rows_that_it_has_count(read, other, store):
    train, test = ids_of(read["tokens"], "train"), ids_of(read["tokens"], "test")
    config = UpdateConfig(forget=("1", "3"))
    changed = made(
        store,
        UpdateDatastore(),
        config,
        source=stored(read, other),
        add=small_tokens(store, seed=2),
    )
    ids, offsets = ids_of(other, "train"), offsets_of(other, "train")
    runs = [ids[: offsets[1]], ids[offsets[2] : offsets[3]], ids[offsets[4] :]]
    runs.append(ids_of(small_tokens(store, seed=2), "train"))
    p = by(lambda place: [event for text in (train, *runs) for event in events(text)], events(test))
    found = Counting(read, "test").control(Reads((changed,)))
    assert found["perplexity"] == pytest.approx(perplexity(p), rel=1e-9)


def test_of_a_row_that_reads_the_scored_text_itself_there_are_no_figures(read):
    found = Counting(read, "test").control(Reads((stored(read, read["tokens"], split="test"),)))
    assert found["perplexity"] is None and {one["split"] for one in found["texts"]} == {
        "train",
        "test",
    }


@pytest.mark.parametrize(
    ("past", "reset"), [("stream", "none"), ("document", "none"), ("stream", "document")]
)
def test_a_row_with_a_cache_counts_on_and_its_weight_is_fitted_where_memory_is_tuned(
    read, past, reset
):
    tokens, train = read["tokens"], ids_of(read["tokens"], "train")

    def both(split):
        ids, offsets = ids_of(tokens, split), offsets_of(tokens, split)
        begins = (
            np.repeat(offsets[:-1], np.diff(offsets)).tolist()
            if past == "document"
            else [0] * len(ids)
        )
        before = by(
            lambda place: events(train), events(ids, offsets if reset == "document" else None)
        )
        scored = events(ids, offsets if "document" in (past, reset) else None)
        return before, by(lambda place: scored[begins[place] : place], scored)

    def mixture(split, weight):
        return [(1 - weight) * a + weight * b for a, b in zip(*both(split), strict=True)]

    found = Counting(read, "test", tune_split="valid", reset=reset).control(Reads(past=past))
    weight = found["weight"]
    assert 0 < weight < 1 and (found["past"], found["tune_split"]) == (past, "valid")
    least = perplexity(mixture("valid", weight))
    assert all(
        least <= perplexity(mixture("valid", one)) + 1e-12 for one in (weight - 1e-3, weight + 1e-3)
    )
    assert found["perplexity"] == pytest.approx(perplexity(mixture("test", weight)), rel=1e-9)


def test_the_weight_is_never_fitted_on_what_is_scored(read, store):
    words = {"test": LastWords(np.array([[2, 5]]))}
    cache = Reads(past="stream")
    assert (
        Counting(read, "test").control(cache)["tune_split"] == "valid"
    )  # nothing is tuned: what would be tuned on
    for counting in (Counting(read, "valid"), Counting(read, "test", last_words=words)):
        found = counting.control(cache)
        assert (found["weight"], found["tune_split"]) == (0.5, None)
    lone = small_tokens(store, lengths={"train": 90, "test": 35})
    found = Counting({"model": small_model(store, lone), "tokens": lone}, "test").control(cache)
    assert (found["weight"], found["tune_split"]) == (0.5, None)


def test_own_rows_of_the_split_that_the_weight_is_fitted_on_are_no_help(read):
    """Where nothing is tuned, a datastore of valid is no leak, but the weight must not be fitted to
    known text.
    """
    held = stored(read, read["tokens"], split="valid")
    without = Counting(read, "test").control(Reads(past="stream"))
    assert (
        Counting(read, "test").control(Reads((held,), past="stream"))["weight"] == without["weight"]
    )


def test_every_row_has_the_control_of_what_it_reads(read, other, store):
    index = made(store, BuildIndex(), IndexConfig(), source=stored(read, other))
    memory = ("external:k=4,temperature=1,lambda=0.3", "long:size=20,theta=0.5,lambda=0.2")
    report = make(
        Evaluate(), EvaluateConfig(memory=memory), {"source": index.reference}, store, Execution()
    ).artifact
    found = json.loads(report.file("metrics.json").read_text())
    counting, held = Counting(read, "test"), (index.input("datastore"),)
    cache = {"past": "stream", "past_tokens": 20}
    expected = [Reads(), Reads(held, **cache), Reads(held), Reads(**cache)]
    outside = np.isin(np.arange(35), np.flatnonzero(_outside(read, other)))
    counting.outside = outside
    assert [_figures(row["control"]) for row in found["rows"]] == [
        counting.control(reads) for reads in expected
    ]
    assert found["trigram"] == counting.trigram()
    assert len({row["control"]["perplexity"] for row in found["rows"]}) == 4


def test_a_row_that_matches_another_text_counts_in_it_too(read, other, store):
    index = made(store, BuildIndex(), IndexConfig(index="exact"), source=other)
    config = EvaluateConfig(memory=("exact:matches=4,temperature=1,lambda=0.3",))
    references = {"source": read["model"].reference, "index": index.reference}
    report = make(Evaluate(), config, references, store, Execution()).artifact
    rows = json.loads(report.file("metrics.json").read_text())["rows"]
    train, test = ids_of(read["tokens"], "train"), ids_of(read["tokens"], "test")
    p = by(lambda place: [*events(train), *events(ids_of(other, "train"))], events(test))
    assert rows[1]["control"]["perplexity"] == pytest.approx(perplexity(p), rel=1e-9)
    assert rows[0]["control"]["perplexity"] != pytest.approx(perplexity(p), rel=1e-3)


def test_other_orders_are_counted_where_they_are_asked_for(read, store):
    config = EvaluateConfig(memory=("long:size=20,theta=0.5,lambda=0.2",), count_orders=(2, 5))
    report = make(
        Evaluate(), config, {"source": read["model"].reference}, store, Execution()
    ).artifact
    plain, cache = (
        row["control"] for row in json.loads(report.file("metrics.json").read_text())["rows"][:2]
    )
    known, ids = ids_of(read["tokens"], "train"), ids_of(read["tokens"], "test")
    by_order = {}
    for n in (2, 3, 5):
        p = [
            slow.probability(w, h, slow.events(known, n, EOS), VOCABULARY)
            for h, w in slow.events(ids, n, EOS)
        ]
        by_order[n] = perplexity(p)
        assert plain["orders"][str(n)]["perplexity"] == pytest.approx(by_order[n], rel=1e-9)
    # the best of them is what the row must beat
    assert plain["order"] == min(by_order, key=by_order.__getitem__) != 3
    assert plain["perplexity"] == pytest.approx(min(by_order.values()), rel=1e-9)
    assert cache["orders"].keys() == {"2", "3", "5"}
    assert cache["orders"]["5"] != plain["orders"]["5"]
    found = json.loads(report.file("metrics.json").read_text())
    assert found["trigram"]["perplexity"] == plain["perplexity"]
    assert "counted-orders" in found["remarks"]


def test_a_row_that_reads_a_limited_cache_counts_as_far_back(read, store):
    sizes = {
        "long:size=5,theta=0.5,lambda=0.2": {5},
        "long:size=3/9,theta=0.5,lambda=0.2": {3, 9},
        "exact-stream:size=7,temperature=1,lambda=0.2": {7},
    }
    for spec, limits in sizes.items():
        config = EvaluateConfig(memory=(spec,))
        references = {"source": read["model"].reference}
        report = make(Evaluate(), config, references, store, Execution()).artifact
        row = json.loads(report.file("metrics.json").read_text())["rows"][1]
        (memory,), control = row["memories"], row["control"]
        assert control["past_tokens"] == memory["size"] and memory["size"] in limits
        ids, train = ids_of(read["tokens"], "test"), ids_of(read["tokens"], "train")
        scored, limit = events(ids), memory["size"]
        before = by(lambda place, train=train: events(train), scored)
        on = by(lambda place, scored=scored, n=limit: scored[max(0, place - n) : place], scored)
        weight = control["weight"]
        p = [(1 - weight) * a + weight * b for a, b in zip(before, on, strict=True)]
        assert control["perplexity"] == pytest.approx(perplexity(p), rel=1e-9)


def test_the_change_against_counting_has_the_interval_of_an_independent_bootstrap(
    read, other, store, monkeypatch
):
    """Documents are drawn in a loop; sums of a row come from its saved scores."""
    limit(monkeypatch, min_units=2)
    index = made(store, BuildIndex(), IndexConfig(), source=stored(read, other, fraction=0.5))
    config = EvaluateConfig(
        memory=("external:k=4,temperature=1,lambda=0.3",), save_token_scores=True
    )
    report = make(Evaluate(), config, {"source": index.reference}, store, Execution()).artifact
    control = json.loads(report.file("metrics.json").read_text())["rows"][1]["control"]

    train, test = ids_of(read["tokens"], "train"), ids_of(read["tokens"], "test")
    rows = ids_of(other, "train")[:45]
    p = by(lambda place: [*events(train), *events(rows)], events(test))
    gains = -array(report, "scores.zarr", "logp").astype(float) + np.log(p)
    documents = [slice(a, b) for a, b in pairwise(offsets_of(read["tokens"], "test"))]
    random = np.random.default_rng(7)
    changes = []
    for _ in range(4000):
        drawn = random.integers(0, len(documents), len(documents))
        total = sum(gains[documents[number]].sum() for number in drawn)
        tokens = sum(len(gains[documents[number]]) for number in drawn)
        changes.append(exp(total / tokens) - 1)
    expected = np.quantile(changes, [0.025, 0.975])
    assert control["interval"] == pytest.approx(expected, abs=0.02)


def _figures(control: dict) -> dict:
    """A control without the intervals of the row's change."""
    return {name: value for name, value in control.items() if "interval" not in name}


def _outside(read: dict[str, Artifact], other: Artifact) -> np.ndarray:
    """Tokens of test in no paragraph of what the model and the datastore were made of."""
    known = np.concatenate(
        [array(one, "tokens.zarr", "train/paragraph_hashes") for one in (read["tokens"], other)]
    )
    hashes, ends = (
        array(read["tokens"], "tokens.zarr", f"test/paragraph_{name}")
        for name in ("hashes", "ends")
    )
    return np.repeat(~np.isin(hashes, known), np.diff(ends, prepend=0))


def test_it_is_left_out_where_it_says_nothing_or_costs_much(read, other, monkeypatch):
    assert Counting(read, "train").trigram() is None  # it knows the text
    assert Counting(read, "train").control(Reads(past="stream")) is None
    model = read["model"]
    manifest = model.manifest.model_copy(update={"outside_files": [["checkpoint", "0"]]})
    imported = {**read, "model": Artifact(model.store, model.path, manifest)}
    assert Counting(imported, "test").trigram() is None
    assert Counting(imported, "test").control(Reads()) is None
    rows = Counting(imported, "test").control(Reads((stored(read, other),)))
    p = by(lambda place: events(ids_of(other, "train")), events(ids_of(read["tokens"], "test")))
    assert rows["perplexity"] == pytest.approx(
        perplexity(p), rel=1e-9
    )  # what it may read is known all the same
    on = Counting(imported, "test").control(Reads(past="stream"))
    assert (on["texts"], on["weight"]) == ([], None)
    ids = ids_of(read["tokens"], "test")
    assert on["perplexity"] == pytest.approx(
        perplexity(slow.counting_on(ids, 3, EOS, VOCABULARY)), rel=1e-9
    )
    monkeypatch.setattr(control, "MOST_TOKENS", 100)
    assert Counting(read, "test").trigram() is not None
    large = Counting(read, "test").control(Reads((stored(read, other),)))
    assert (large["perplexity"], sum(one["tokens"] for one in large["texts"])) == (None, 180)
