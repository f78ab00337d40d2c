"""Numbers of a memory chosen by the BLEU of the tuning split."""

from typing import Any

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.pages.lineage import Member
from stages.pages.source import ReportSource
from stages.pages.tables import bleu_tables
from tests.builders.translations import evaluated, index
from tests.stages.kills import made_in_pieces
from tests.stages.small_text import text_model, text_tokens

__all__ = ["index"]
GRID = "external:k=1/2,temperature=0.01/100,lambda=0.1/0.999"
BEAM = {"beam": 2, "length_penalty": 1.0}


def tried(report: Artifact) -> list[dict[str, Any]]:
    (row,) = report.json("metrics.json")["tuning"]["bleu"]["rows"]
    return list(row["candidates"])


def test_the_best_bleu_of_the_tuning_split_is_that_of_translating_it(index: Artifact) -> None:
    report = evaluated(index, memory=(GRID,), tune_by="bleu", **BEAM)
    candidates = tried(report)
    assert report.json("metrics.json")["tuning"]["bleu"]["sentences"] == 2
    assert (
        len({tuple(one[name] for name in ("k", "temperature", "lambda")) for one in candidates})
        == 8
    )
    best, worst = (choose(candidates, key=lambda one: one["bleu"]) for choose in (max, min))
    for one in (best, worst):
        spec = f"external:k={one['k']},temperature={one['temperature']:g},lambda={one['lambda']:g}"
        alone = evaluated(index, memory=(spec,), split="valid", **BEAM)
        assert alone.metrics["rows"][1]["bleu"] == pytest.approx(one["bleu"])
    assert best["bleu"] > worst["bleu"]
    memory = report.metrics["rows"][1]["memories"][0]
    assert {name: memory[name] for name in ("k", "temperature", "lambda")} == {
        n: v for n, v in best.items() if n != "bleu"
    }


def test_bleu_chooses_what_perplexity_does_not(
    index: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other reports than those that try candidates.
    settings = {"memory": (GRID,), "save_token_scores": False, **BEAM}
    by_perplexity = evaluated(index, **settings)
    assert "bleu" not in by_perplexity.json("metrics.json")["tuning"]
    scores = iter([1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 1.0])
    monkeypatch.setattr("stages.evaluation.phases.try_candidate", lambda *_: {"bleu": next(scores)})
    by_bleu = evaluated(index, tune_by="bleu", **settings)
    chosen = [report.metrics["rows"][1]["memories"][0] for report in (by_perplexity, by_bleu)]
    assert [chosen[1][name] for name in ("k", "temperature", "lambda")] == [
        1,
        100,
        0.999,
    ]  # the first of equals
    curve = by_bleu.json("metrics.json")["curves"][0]["points"]
    assert [point["perplexity"] for point in curve if point["k"] == 1] == [
        by_bleu.metrics["rows"][1]["perplexity"]
    ]


def test_a_kill_loses_one_candidate(index: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "memory": ("external:k=1/2,temperature=1,lambda=0.6/0.9",),
        "tune_by": "bleu",
        **BEAM,
    }
    whole = evaluated(index, **settings)
    wanted = tried(whole)
    index.store.remove(whole.reference)
    again, attempts = made_in_pieces(
        monkeypatch, lambda: evaluated(index, **settings), logged=False
    )
    assert tried(again) == wanted
    assert attempts.begun_with == list(range(11))  # each candidate is a shard


@pytest.mark.parametrize(
    ("memory", "settings", "words"),
    [
        (
            ("external:k=1,temperature=tune,lambda=0.1/0.2",),
            {},
            "temperature of external is no list of numbers",
        ),
        (("external:k=1,temperature=1/2,lambda=adaptive",), {}, "lambda of external is no list"),
        (
            ("external:k=1,temperature=1/2/3/4/5/6,lambda=.1/.2/.3/.4/.5/.6",),
            {},
            "36 points are too many",
        ),
        (("external:k=1,temperature=1,lambda=0.1",), {}, "nothing is tuned"),
        (("external:k=1,temperature=1/2,lambda=0.1",) * 2, {}, "2 readings"),
        ((), {}, "nothing is tuned"),
        ((GRID,), {"beam": 0}, "--beam 0"),
        (("long:size=5,theta=0.1/0.2,lambda=0.2",), {}, "--beam 0"),
    ],
)
def test_what_bleu_cannot_choose_is_said(
    index: Artifact, memory: tuple[str, ...], settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        evaluated(index, memory=memory, tune_by="bleu", **settings)


def test_text_of_one_language_has_no_bleu(tmp_path: Any) -> None:
    store = Store(tmp_path / "store")
    model = text_model(store, text_tokens(store, tmp_path))
    with pytest.raises(UsageError, match="one language: tune by perplexity"):
        evaluated(model, memory=("long:size=5,theta=0.1/0.2,lambda=0.2",), tune_by="bleu")


def page_source(report: Artifact) -> ReportSource:
    return ReportSource(
        Member(report.reference, report), report.json("metrics.json"), {}, "", "", True, []
    )


def test_a_page_shows_what_was_tried_and_which_was_best(index: Artifact) -> None:
    report = evaluated(
        index, memory=("external:k=1/2,temperature=1,lambda=0.1/0.9",), tune_by="bleu", **BEAM
    )
    (table,) = bleu_tables(page_source(report))
    assert table.columns == ("k", "τ", "λ", "BLEU")
    assert [[cell.value for cell in row.cells] for row in table.rows] == [
        [one["k"], one["temperature"], one["lambda"], one["bleu"]] for one in tried(report)
    ]
    (best,) = [row for row in table.rows if row.cells[-1].mark == "best"]
    assert best.cells[-1].value == max(one["bleu"] for one in tried(report))
    assert (
        list(
            bleu_tables(
                page_source(
                    evaluated(index, memory=("external:k=1,temperature=1,lambda=0.1",), **BEAM)
                )
            )
        )
        == []
    )
