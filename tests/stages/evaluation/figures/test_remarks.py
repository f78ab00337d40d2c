"""What must be known of a report's figures, in sentences."""

from math import exp, log

import pytest

from stages.evaluation.figures.baseline import shut_line
from stages.evaluation.figures.remarks import (
    against_lines,
    control_lines,
    remarks,
    training_text_lines,
    undertrained_lines,
)
from stages.evaluation.figures.row_names import SHUT

ROWS = [{"row": "plain", "perplexity": 80.0}, {"row": "knn-lm", "perplexity": 72.0}]
COUNTS = {"tokens": 1000, "words": 500}
REPORT = {"method": "lm", "read": {"model": "model/3"}, "rows": ROWS}


@pytest.mark.parametrize(
    ("method", "first", "told"),
    [
        ("lm", "plain", ["change: against plain, model/3 without memory"]),
        ("trime", "plain", ["change: against plain, model/3 without memory", "it learned to be read with memory, so"]),
        ("spalm", "spalm", ["change: against spalm, model/3 with what its gate reads"]),
    ],
)
def test_what_changes_are_against_is_said(method: str, first: str, told: list[str]) -> None:
    report = {**REPORT, "method": method, "rows": [{"row": first, "perplexity": 80.0}, *ROWS[1:]]}
    lines = list(against_lines(report))
    assert [line[: len(start)] for line, start in zip(lines, told, strict=True)] == told
    assert list(against_lines({**report, "rows": ROWS[:1]})) == []


def test_it_is_said_of_what_intervals_are() -> None:
    drawn = {"samples": 10_000, "confidence": 0.95, "unit": "document", "block_tokens": None, "units": 57}
    (line,) = (line for line in remarks({**REPORT, "change_intervals": drawn}) if line.startswith("in brackets"))
    assert line.startswith(
        "in brackets: 95% intervals from 10,000 resamples of 57 documents, the same draws for each row"
    )
    alone = remarks({**REPORT, "change_intervals": {**drawn, "units": 1}})
    few = "no intervals: 1 document: too few to say how far other text would move a change; score more text"
    assert few in alone


@pytest.mark.parametrize(
    ("valid", "said"), [(30.0, "easier"), (65.0, None), (79.0, None), (99.0, None), (110.0, "harder")]
)
def test_a_valid_split_that_is_harder_or_easier_is_remarked_on(valid: float, said: str | None) -> None:
    lines = remarks({**REPORT, "split": "test", "valid_perplexity": valid})
    start = f"plain has perplexity {valid:g} on valid and 80 on test: valid is "
    found = [line.removeprefix(start).split(",")[0] for line in lines if line.startswith(start)]
    assert found == ([said] if said else [])


@pytest.mark.parametrize(
    ("rows", "above", "said"),
    [
        (
            {"plain": 80, "a": 60, "b": 61, "c": 70},
            (None, [-0.001, 0.02], [0.1, 0.2]),
            "a is lowest, but b differs from",
        ),
        ({"plain": 80, "a": 61, "b": 60, "c": 60.5}, ([0, 0.02], None, [-0.1, 0.2]), "b is lowest, but a and c differ"),
        ({"plain": 80, "a": 60, "b": 61, "c": 70}, (None, [0.001, 0.02], None), ""),
        ({"plain": 50, "a": 60, "b": 61, "c": 70}, (None, [-0.001, 0.02], [0.1, 0.2]), ""),
        ({"plain": 80, "a": 60, "b": 61, "c": 70}, (None, None, None), ""),
        ({"plain": 80, "a": None, "b": 61, "c": 70}, ([-0.1, 0.1], None, None), "b is lowest, but a differs from"),
    ],
)
def test_rows_that_chance_may_have_put_apart_tie(rows: dict, above: tuple, said: str) -> None:
    drawn = {"samples": 10, "confidence": 0.95, "unit": "document", "block_tokens": None, "units": 57}
    told = [{"row": row, "interval": None, "above_lowest": edges} for row, edges in zip("abc", above, strict=True)]
    made = [{**ROWS[0], "row": row, "perplexity": value, "memories": []} for row, value in rows.items()]
    lines = remarks({**REPORT, "rows": made, "change_intervals": {**drawn, "rows": told}})
    ties = [line for line in lines if line.endswith("they tie")]
    assert [line.startswith(said) for line in ties] == [True] * bool(said)
    lower = {"row": {"row": "plain", "perplexity": 40.0}, "model": "model/2", "report": "report/2", "method": "lm"}
    beside = {**REPORT, "rows": made, "change_intervals": {**drawn, "rows": told}, "baseline": lower}
    assert not any(line.endswith("they tie") for line in remarks(beside)), "the baseline's row is lowest"


@pytest.mark.parametrize(("words", "said"), [(4000.0, True), (80.0, False), (None, False), (1e9, False)])
def test_what_a_word_perplexity_is_for_is_said_where_one_is_shown(words: float | None, said: bool) -> None:
    rows = [{**ROWS[0], "nll": 4.4, "word_perplexity": words, "bits_per_character": 1.9}, *ROWS[1:]]
    assert (
        any("compare models of different ones" in line for line in remarks({**REPORT, **COUNTS, "rows": rows})) == said
    )


def in_words(row: str, perplexity: float, words: int, characters: int, tokens: int = 1000) -> dict:
    """A row of a text of so many words and characters."""
    nll = tokens * log(perplexity)
    of = exp(nll / words) if nll / words < 700 else None
    bits = nll / log(2) / characters
    return {
        "row": row,
        "perplexity": perplexity,
        "nll": log(perplexity),
        "word_perplexity": of,
        "bits_per_character": bits,
    }


@pytest.mark.parametrize(
    ("words", "characters", "plain", "said"),
    [
        (300, 1500, 8.0, None),
        (300, 1500, 80.0, "no word perplexity of plain: it is above 1,000,000, as a word has 5 characters here, and a"),
        (20, 2000, 80.0, "no word perplexity: white space sets 100 characters apart on average, which are no words"),
        (5, 2000, 80.0, "no word perplexity: white space sets 400 characters apart on average, which are no words"),
    ],
    ids=["words", "too high", "sentences", "more than can be written"],
)
def test_why_there_is_no_word_perplexity_is_said(words: int, characters: int, plain: float, said: str | None) -> None:
    rows = [
        in_words("plain", plain, words, characters),
        in_words("knn-lm", 7.0 if words == 300 else 70.0, words, characters),
    ]
    lines = [line for line in remarks({**REPORT, "rows": rows, "tokens": 1000, "words": words}) if "no word" in line]
    assert [line[: len(said or "")] for line in lines] == ([said] if said else [])


@pytest.mark.parametrize(
    ("method", "trigram", "warning"),
    [
        ("lm", 84.5, None),
        ("lm", 80.5, "plain is hardly better than the trigram (80.5): what a memory gains on a model that hardly"),
        ("lm", 80.0, "plain is no better than the trigram (80): what a memory gains"),
        ("lm", 74.0, "plain is no better than the trigram (74), and no other row is by more than a little: what"),
        ("lm", 72.0, "plain is no better than the trigram (72), nor is any other row: what a memory"),
        ("trime", 79.0, None),
        ("trime", 70.0, "knn-lm is no better than the trigram (70): what a memory gains"),
    ],
)
def test_the_model_is_held_against_counting_three_tokens(method: str, trigram: float, warning: str | None) -> None:
    report = {**REPORT, "method": method, "trigram": {"perplexity": trigram, "perplexity_on_new_text": trigram}}
    first, *others = control_lines(report)
    assert first == f"a trigram of the training text alone: {trigram:g}"
    assert [line[: len(warning or "")] for line in others] == ([] if warning is None else [warning])
    assert set(control_lines(report)) <= set(remarks(report))


@pytest.mark.parametrize(
    ("training", "remedy"),
    [
        (None, "train longer, or on more text"),
        ({"passes": 4, "still_falling": True}, "train longer (--steps or --epochs of train, --minutes of try), or on"),
        ({"passes": 8, "still_falling": True}, "it was trained for 8 passes, and more would gain little: train on"),
        ({"passes": 4, "still_falling": False}, "it was trained for 4 passes, and more would gain little: train on"),
    ],
)
def test_a_weak_model_is_to_be_trained_longer_only_where_the_report_says_that_it_was_not_enough(
    training: dict[str, object] | None, remedy: str
) -> None:
    report = {**REPORT, "training": training, "trigram": {"perplexity": 72.0, "perplexity_on_new_text": None}}
    *_, line = control_lines(report)
    assert line.partition("stronger ones; ")[2].startswith(remedy)
    assert ("train longer (" in line) == any(undertrained_lines(report))


def test_words_of_memories_are_explained_once() -> None:
    cache = {"sources": ["long"], "reader": "interpolate", "size": 900, "theta": 0.3, "lambda": 0.1}
    neighbors = {"sources": ["external"], "reader": "interpolate", "k": 8, "temperature": 2.0, "lambda": 0.1}
    rows = [{**ROWS[0], "memories": []}, {**ROWS[1], "memories": [neighbors, cache]}, {**ROWS[1], "memories": [cache]}]
    report = {**REPORT, **COUNTS, "score": "all", "rows": rows}
    (line,) = [line for line in remarks(report) if line.startswith("external: the k nearest entries of the datastore")]
    assert [part.partition(": ")[0] for part in line.split("; ")] == [
        *("external", "interpolate", "temperature τ", "lambda λ", "long", "theta θ")
    ]
    outside = {**cache, "sources": ["elsewhere"]}
    assert not any("elsewhere" in line for line in remarks({**report, "rows": [{**ROWS[1], "memories": [outside]}]}))
    assert not any("interpolate: " in line for line in remarks({**report, "rows": ROWS}))


@pytest.mark.parametrize(
    ("size", "score", "said"), [(999, "all", 0), (1000, "all", 1), (4721, "all", 1), (4721, "", 0)]
)
def test_a_cache_of_all_that_there_is_is_said_to_be_that(size: int, score: str, said: int) -> None:
    cache = {"sources": ["long"], "reader": "interpolate", "size": size, "lambda": 0.1}
    report = {**REPORT, **COUNTS, "score": score, "rows": [{**ROWS[1], "memories": [cache]}]}
    start = f"a cache of {size:,} holds every position before the one that reads: what was scored has 1,000 "
    assert len([line for line in remarks(report) if line.startswith(start)]) == said


@pytest.mark.parametrize(("share", "said"), [(0.048, True), (0.01, False), (None, False)])
def test_many_ends_of_documents_are_remarked_on(share: float | None, said: bool) -> None:
    lines = remarks({**REPORT, "document_ends": share})
    assert any(line.startswith("4.8% of the tokens are <eos>") for line in lines) == said


@pytest.mark.parametrize(("rate", "which"), [(0.1, ", or the line end before it,"), (0.053, ",")])
def test_ends_of_documents_are_counted_with_their_line_ends_and_the_perplexity_is_told_without(
    rate: float, which: str
) -> None:
    rows = [
        {"row": "plain", "perplexity_without": 43.57, "share_of_gain": None},
        {"row": "knn-lm", "perplexity_without": 37.86, "share_of_gain": 0.01},
    ]
    report = {**REPORT, "document_ends": 0.053, "end_tokens": {"rate": rate, "rows": rows}}
    (line,) = (line for line in remarks(report) if "<eos>" in line)
    assert line.startswith(f"{rate:.1%} of the tokens are the <eos> of a document{which} and easy to tell: ")
    assert line.endswith("; perplexity without them, their share of each gain: plain 43.57; knn-lm 37.86 (-13.1%), 1%")


def test_a_model_that_diverged_is_no_better_and_without_a_control_nothing_is_said() -> None:
    rows = [{"row": "plain", "perplexity": None}]
    assert (
        len(
            list(
                control_lines({**REPORT, "rows": rows, "trigram": {"perplexity": 9.0, "perplexity_on_new_text": None}})
            )
        )
        == 2
    )
    for none in (REPORT, {**REPORT, "trigram": None}, {**REPORT, "trigram": {"perplexity": None}}):
        assert not list(control_lines(none))


def test_where_text_was_read_before_the_new_one_decides() -> None:
    report = {**REPORT, "trigram": {"perplexity": 7.8, "perplexity_on_new_text": 90.0}}
    outside = {"repeated_share": 0.5, "rows": [{"row": "plain", "perplexity": 85.0}], "texts": []}
    (line,) = control_lines({**report, "outside_repeated_paragraphs": outside})
    assert line == "a trigram of the training text alone: 7.8, on new text 90"
    assert len(list(control_lines({**report, "outside_repeated_paragraphs": {**outside, "repeated_share": 0.0}}))) == 2


@pytest.mark.parametrize(
    ("passes", "falling", "told"),
    [
        (0.5, None, ["model/3 was trained for 0.5 passes over its text: "]),
        (
            2,
            True,
            ["model/3 was trained for 2 passes over its text, and validation was still falling late in the run: "],
        ),
        (2, False, []),
        (2, None, []),
    ],
)
def test_an_evaluation_repeats_it_of_an_undertrained_model(
    passes: float, falling: bool | None, told: list[str]
) -> None:
    lines = list(undertrained_lines({**REPORT, "training": {"passes": passes, "still_falling": falling}}))
    assert [line.partition("a memory gains more")[0] for line in lines] == told


def test_a_report_that_says_nothing_of_training_has_no_such_line() -> None:
    assert list(undertrained_lines({**REPORT, "training": None})) == list(undertrained_lines(REPORT)) == []


def test_a_report_of_memory_that_only_costs_and_was_not_tried_without_says_what_would_switch_it_off() -> None:
    grid = {
        **{"row": "knn-lm", "split": "valid", "weight_name": "lambda", "weights": [0.02, 0.1]},
        **{"nll": [[4.1, None], [4.2, 4.3]], "plain_nll": 4.0},
    }

    def told(**changed: object) -> list[str]:
        return [line for line in remarks({**REPORT, "grid": {**grid, **changed}}) if "tries 0" in line]

    (line,) = told()
    assert line.startswith(
        "knn-lm is worse on valid than no memory with every lambda that was tried: lambda=tune tries"
    )
    assert not told(plain_nll=4.15), "it helps"
    assert not told(weights=[0.0, 0.1]), "0 was tried"
    assert not told(weight_name="alpha")
    assert not told(nll=[[None, None], [None, None]])


def test_what_may_not_be_found_is_said_of_what_was_made_of_the_text() -> None:
    read = {"model": "model/3", "datastore": "datastore/4"}
    told = remarks({**REPORT, "read": read, "exclude": "window:9"})
    said = (
        "datastore/4 was made of what is read here (--exclude window:9): a token may not find the rows of the 9 tokens "
    )
    assert f"{said}before and after it; those further away are found: no result for new text" in told
    gate = remarks({**REPORT, "read": {"model": "model/3", "gate_neighbors": "neighbors/5"}, "exclude": "self"})
    said = "a token may not find its own row; rows of the tokens beside it are found: no result for new text"
    assert f"neighbors/5 was made of what is read here (--exclude self): {said}" in gate
    apart = remarks({**REPORT, "read": read, "exclude": "document"})
    assert any("the rows of its document; those of other documents are found: no result" in line for line in apart)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, True),
        ({"split": "valid"}, False),
        ({"read": {"model": "model/3", "tokens": "tokens/2"}}, False),
        ({"training": None}, False),
        ({"outside_repeated_paragraphs": None}, False),
    ],
)
def test_that_the_training_text_was_scored_is_said(changed: dict, said: bool) -> None:
    learned = {"corpus": "tokens/1", "split": "train", "read_by": ["model"], "repeated_share": 1.0}
    report = {
        **REPORT,
        **{"split": "train", "read": {"model": "model/3", "tokens": "tokens/1"}},
        **{"training": {"passes": 8.0, "still_falling": False}},
        "outside_repeated_paragraphs": {"repeated_share": 1.0, "texts": [learned], "rows": []},
    }
    lines = list(training_text_lines(report | changed))
    assert [line.startswith("train is what model/3 learned") for line in lines] == [True] * said
    assert set(lines) <= set(remarks(report | changed))
    uneven = [line for line in remarks({**report, **changed, "valid_perplexity": 300.0}) if "valid is harder" in line]
    assert bool(uneven) is not said, "a model's own text differs from valid because it was learned"


@pytest.mark.parametrize(("shut", "told"), [(9.0, True), (10.0, True), (11.0, False), (None, False)])
def test_a_gate_that_gains_nothing_is_told(shut, told):
    lines = list(shut_line([{"row": "spalm", "perplexity": 10.0}, {"row": SHUT, "perplexity": shut}]))
    assert bool(lines) == told
