"""Longest matches against substrings that are compared one by one, and the figures that come of
them.
"""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.artifacts.store import Store
from stages.evaluation.figures import texts
from stages.evaluation.figures.texts import in_match, longest_matches
from tests.stages.slow_evaluation import evaluated
from tests.stages.small_store import array, small_model, small_tokens


def documents(ids, offsets):
    return [tuple(ids[a:b].tolist()) for a, b in pairwise(offsets)]


def slow_matches(scored, known):
    """Of each token of documents: the longest run that ends with it and is a part of a known
    document.
    """
    parts = {doc[a:b] for doc in known for a in range(len(doc)) for b in range(a + 1, len(doc) + 1)}
    ends = [(doc, t) for doc in scored for t in range(1, len(doc) + 1)]
    return [
        max((n for n in range(1, t + 1) if doc[t - n : t] in parts), default=0) for doc, t in ends
    ]


def slow_covered(matches, length):
    """Whether a match of so many tokens holds each token."""
    runs = [range(t - n + 1, t + 1) for t, n in enumerate(matches) if n >= length]
    return [any(t in run for run in runs) for t in range(len(matches))]


@settings(max_examples=60, deadline=None)
@given(st.integers(0), st.integers(1, 3), st.integers(0, 30), st.integers(0, 30))
def test_matches_are_those_of_all_substrings(
    seed: int, vocabulary: int, scored: int, known: int
) -> None:
    random = np.random.default_rng(seed)
    texts = []
    for tokens in (scored, known):
        offsets = np.unique(np.r_[0, random.integers(0, tokens + 1, 2), tokens])
        texts.append((random.integers(0, vocabulary, tokens).astype(np.uint16), offsets))
    with (
        pytest.MonkeyPatch.context() as patched
    ):  # several parts of a text, of which the longest match counts
        patched.setattr("stages.suffixes.text.AT_ONCE", 7)
        found = longest_matches(*texts[0], *texts[1], vocabulary)
    assert found.tolist() == slow_matches(*(documents(*text) for text in texts))
    for length in (1, 2, 4):
        assert in_match(found, length).tolist() == slow_covered(found.tolist(), length)


@pytest.mark.parametrize("score", ["all", "last-word"])
def test_a_report_tells_shares_and_rows_outside_long_matches(
    tmp_path, monkeypatch: pytest.MonkeyPatch, score: str
) -> None:
    monkeypatch.setattr(texts, "LENGTHS", (2, 3))
    monkeypatch.setattr(texts, "NEW_BELOW", 3 if score == "all" else 2)
    store = Store(tmp_path / "store")
    model = small_model(store, small_tokens(store))
    report = evaluated(store, model, "long:size=5,lambda=0.2", score=score)
    tokens = model.input("tokens")
    parts = [
        documents(
            *(array(tokens, "tokens.zarr", f"{split}/{name}") for name in ("ids", "doc_offsets"))
        )
        for split in ("test", "train")
    ]
    matches = slow_matches(*parts)
    figures = json.loads((report.path / "metrics.json").read_text())["outside_matches"]
    (text,) = figures["texts"]
    assert (text["corpus"], text["split"], text["tokens"]) == (tokens.reference, "train", 90)
    if score == "all":
        covered = {length: np.array(slow_covered(matches, length)) for length in (2, 3)}
        assert figures["shares"] == {
            str(n): pytest.approx(inside.mean()) for n, inside in covered.items()
        }
        assert 0 < figures["tokens"] == (~covered[3]).sum() < len(matches)
        log_p = [array(report, "scores.zarr", name)[~covered[3]] for name in ("logp_lm", "logp")]
        want = [pytest.approx(np.exp(-one.mean(dtype=float)), rel=1e-5) for one in log_p]
        assert [row["perplexity"] for row in figures["rows"]] == want
    else:
        assert 0 < figures["tokens"] < report.metrics["tokens"]
