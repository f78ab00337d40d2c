"""What counts as a name, and what a report gains on names."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from stages.artifacts.store import Store
from tests.benchmarks import bench_names
from tests.benchmarks.bench_names import gained, names_of, words_of
from tests.stages.comparison.made import corpus, report


def test_words_are_runs_of_letters_with_the_space_before_them():
    words = list(words_of([" Ma", "ry", " said", ",", "\n", "Tom", " 's", " go", "ing"]))
    assert [(word.start, word.stop, word.text) for word in words] == [
        (0, 2, "Mary"),
        (2, 3, "said"),
        (3, 4, ","),
        (4, 6, "Tom"),
        (6, 7, "'s"),
        (7, 9, "going"),
    ]
    assert list(words_of(["Mary"])) == [(0, 1, "Mary")]


def test_names_are_words_that_are_always_capital_by_how_far_back_they_were_used():
    text = " Mary saw Tom . The cat saw Mary . the MP saw Al , Tom and the MP , Al , Mary"
    pieces = [" " + word for word in text.split()]
    found = [
        (name.word.text, name.word.start, name.back) for name in names_of(list(words_of(pieces)))
    ]
    assert found == [("Mary", 7, 7), ("Tom", 14, 12), ("Mary", 21, 14)]


def test_what_is_gained_and_how_sure_it_is():
    first, second = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 1.0, 3.0, 3.0])
    assert gained(first, second) == {"first": 2.5, "second": 2.0, "gain": 0.5, "interval": 0.49}


def test_two_reports_by_how_far_back_names_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store, text = Store(tmp_path / "store"), "Mary saw a hat Mary saw Tom . Mary saw Tom"
    tokens = corpus(store, tmp_path, {"train": text + "\n", "test": text + "\n"})
    nll = [1.0] * 12
    better = [1.0] * 4 + [0.5] + [1.0] * 3 + [0.25] + [1.0] + [2.0, 1.0]
    reports = [report(store, tokens, one).reference for one in (nll, better)]
    own = ["--store", str(store.root), "--limits", "3", "4"]
    monkeypatch.setattr(sys, "argv", ["bench_names", *reports, *own])
    bench_names.main()
    everything, far = json.loads(capsys.readouterr().out)["rows"]
    assert everything["tokens"] == 12
    assert everything["gain"] == pytest.approx(0.0208)
    assert far == {
        **{"name": "names, 4-4 back", "words": 3, "tokens": 3, "first": 1.0, "second": 0.9167},
        **{"gain": 0.0833, "interval": far["interval"]},
    }
