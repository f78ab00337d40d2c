"""The tables that end train, evaluate and run."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from memlm_cli.results.groups import groups_text
from memlm_cli.results.report import most_important
from memlm_cli.results.show import show_result, tell_rest
from memlm_cli.results.tokens import splits_table
from memlm_cli.tables import table
from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.reports.remarks import Remark, Severity
from tests.stages.pages import made

SEVERE = {"trigram": {"perplexity": 120.0, "perplexity_on_new_text": 120.0}}
NOTES = {"training": {"passes": 0.5, "still_falling": True}}


@pytest.fixture
def report(tmp_path: Path) -> Artifact:
    return made.chain(Store(tmp_path / "store"), SEVERE | NOTES)


def test_a_report_is_its_table_its_meaning_and_what_most_important(
    report: Artifact, capsys
) -> None:
    show_result(report)
    blank, title, head, plain, cache, meaning, *mind = capsys.readouterr().err.splitlines()
    assert (blank, title.split(", ")) == ("", [report.reference, "test", "40 tokens"])
    assert [line.split()[0] for line in (head, plain, cache)] == ["Memory", "plain", "neural-cache"]
    assert meaning.startswith("neural-cache: ") and "113.57" in meaning and "32.4%" in meaning
    assert len(mind) == 1 and "counting" in mind[0]


def test_verbose_tells_all_remarks_settings_and_tables(report: Artifact, capsys) -> None:
    show_result(report, verbose=True)
    said = capsys.readouterr().err
    for part in ("0.5 passes", "Changes are against plain", "θ 0.3", "how often a token stands"):
        assert part in said


@pytest.mark.parametrize(
    ("codes", "minded"),
    [("SSCN", "SS"), ("CCN", "C"), ("NN", ""), ("", "")],
    ids=["severe", "one", "none", "nothing"],
)
def test_all_that_is_severe_is_minded_else_one_remark(codes: str, minded: str) -> None:
    severities = {"S": Severity.SEVERE, "C": Severity.CAUTION, "N": Severity.NOTE}
    remarks = [Remark(code, severities[code], "") for code in codes]
    assert "".join(remark.code for remark in most_important(remarks)) == minded


@pytest.mark.parametrize(
    "code",
    ["unlike-baseline", "other-form", "no-intervals", "rough-intervals", "unsure-learned-weight"],
)
def test_what_makes_a_row_doubtful_is_said_whatever_else_is_minded(code: str) -> None:
    doubt = Remark(code, Severity.CAUTION, "")
    severe, caution = Remark("a", Severity.SEVERE, ""), Remark("b", Severity.CAUTION, "")
    assert most_important([severe, caution, doubt]) == [severe, doubt]
    assert most_important([caution, doubt]) == [caution, doubt]


def test_where_counting_is_as_good_it_is_named_and_no_gain_is_claimed(
    tmp_path: Path, capsys
) -> None:
    counted = {
        "perplexity": 50.0,
        "perplexity_on_new_text": 50.0,
        "texts": [],
        "past": None,
        "weight": None,
    }
    rows = [made.row("plain", 168.0), {**made.row("neural-cache", 113.57), "control": counted}]
    found = {"rows": rows, "outside_repeated_paragraphs": None}
    show_result(made.chain(Store(tmp_path / "store"), found), named=True)
    *_, meaning, minded = capsys.readouterr().err.splitlines()
    assert "113.57" in meaning and "50.00" in meaning and "%" not in meaning
    assert "50" in minded


def test_a_person_is_told_the_path_of_the_page_and_a_pipe_the_command(
    report: Artifact, capsys, monkeypatch
) -> None:
    tell_rest(report)
    assert f"memlm report {report.reference} --store" in capsys.readouterr().err
    monkeypatch.setattr("memlm_cli.results.report.on_terminal", lambda: True)
    monkeypatch.setattr("memlm_cli.reproduce.script", lambda members: "memlm …")
    tell_rest(report)
    path = Path(capsys.readouterr().err.strip().removeprefix("page: "))
    path.write_text("damaged: the store is memlm's own")
    tell_rest(report)
    assert path.is_relative_to(report.store.root) and "113.57" in path.read_text("utf-8")


def test_what_does_not_beat_counting_is_said_under_the_means() -> None:
    figures = {"n": 2, "mean": 72.0, "deviation": 1.0, "interval": [71.0, 73.0]}
    rows = [{"row": "knn-lm", "perplexity": figures, "change": None, "counting": 24.7}]
    rows[0]["against_counting"] = {"perplexity": 72.0, "counting": 24.7}
    group = {"method": "lm", "seeds": [0, 1], "reports": ["report/1", "report/2"], "rows": rows}
    found = {"split": "test", "confidence": 0.95, "unknown_rate": None, "groups": [group]}
    head, _, _, caption, first, *_, last = groups_text(found).splitlines()
    assert "95%" in caption
    assert head.endswith("counting") and first.startswith("A: knn-lm ")
    assert last.startswith("A: lm") and last.endswith(": report/1, report/2")


SPLITS = {
    "vocabulary_size": 300,
    "tokenizer": "bpe",
    "splits": {"train": {"documents": 7, "tokens": 900}},
}


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    ("kind", "metrics", "shown"),
    [("model", {"steps": 7}, "steps"), ("tokens", SPLITS, "bpe, 300 types")],
)
def test_a_reference_that_stands_on_the_screen_is_not_repeated(
    capsys, kind: str, metrics: dict, shown: str, named: bool
) -> None:
    reference, manifest = f"{kind}/0123456789ab", SimpleNamespace(files={}, inputs={})
    made = SimpleNamespace(
        kind=kind,
        reference=reference,
        metrics=metrics,
        config={},
        manifest=manifest,
    )
    show_result(made, named=named)
    told = capsys.readouterr().err
    (line,) = (line for line in told.splitlines() if shown in line)
    assert (reference in told) != named and (kind == "model" or line.startswith(shown) == named)
    assert ("all 256 bytes" in told) == (kind == "tokens")


@pytest.mark.parametrize(("whole", "shown"), [(True, "stored whole"), (False, "stored as codes")])
def test_figures_that_need_an_explanation_are_shown_as_words(
    capsys, whole: bool, shown: str
) -> None:
    manifest = SimpleNamespace(bytes=28_161_120)
    metrics = {"lossless": whole, "bytes": 20_000_000}
    show_result(
        SimpleNamespace(kind="index", reference="index/3", metrics=metrics, manifest=manifest)
    )
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(maxsplit=1) for line in lines if line[:4] == "keys"] == [["keys", shown]]
    assert [
        line.removeprefix("on disk").strip() for line in lines if line.startswith("on disk")
    ] == ["28.2 MB"]


def test_words_of_an_index_a_datastore_and_a_model_are_explained_where_they_stand(capsys) -> None:
    index = {"queries": 100, "recall": {"1": 1.0}, "queries_per_second": {"4": 268.6}}
    show_result(SimpleNamespace(kind="index", reference="index/3", metrics=index))
    assert "recall@k: " in capsys.readouterr().err
    show_result(SimpleNamespace(kind="index", reference="index/3", metrics={"rows": 9}))
    assert "recall" not in capsys.readouterr().err
    show_result(
        SimpleNamespace(kind="datastore", reference="datastore/3", metrics={"key": "ffn-input"})
    )
    assert "ffn-input, " in capsys.readouterr().err
    trained = {
        "steps": 9,
        "passes": 8.0,
        "still_falling": False,
        "last_validations": [],
        "valid_step": 9,
    }
    show_result(SimpleNamespace(kind="model", reference="model/3", metrics=trained, config={}))
    told = capsys.readouterr().err
    assert "still falling" not in told and "8 passes" in told


@pytest.mark.parametrize(
    ("examples", "named"),
    [("pairs", "pairs of sentences"), ("documents", "records with a label"), (None, "files or")],
)
def test_documents_are_called_what_they_are(examples: str | None, named: str, capsys) -> None:
    splits = {"train": {"documents": 4, "tokens": 20}}
    metrics = {"tokenizer": "word", "vocabulary_size": 9, "splits": splits} | (
        {"examples": examples} if examples else {}
    )
    show_result(SimpleNamespace(kind="tokens", reference="tokens/3", metrics=metrics, config={}))
    assert f"documents: {named}" in capsys.readouterr().err


def test_a_plain_table_is_aligned_text_of_any_width() -> None:
    long = "x" * 300
    lines = table("", ("name", "n"), [("a", "1"), (long, "1,000")]).splitlines()
    assert [line.split() for line in lines] == [["name", "n"], ["a", "1"], [long, "1,000"]]
    assert len({len(line) for line in lines[1:]}) == 1


def test_a_title_is_a_line_of_its_own_and_empty_headers_are_left_out() -> None:
    assert table("model/0123456789ab", ("", ""), [("steps", "2")]) == "model/0123456789ab\nsteps  2"


@pytest.mark.parametrize(
    "text", ["[red]x[/]", "[/]", "memory: [long:size=3]", "a :heart:", "a\\", "\\[b]"]
)
def test_nothing_in_a_cell_is_markup(text: str) -> None:
    assert table("", ("", ""), [(text, "1")]) == f"{text}  1"


def test_a_cell_may_have_a_colour_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[32mcat" in table("", ("word",), [(("cat", "green"),)], terminal=True)
    assert table("", ("word",), [(("cat", "green"),)]) == "word\ncat"


def test_a_split_of_tokens_shows_what_matters_first_and_its_unknown_rate() -> None:
    split = {
        "bytes": 9,
        "characters": 9,
        "documents": 1,
        "paragraphs": 2,
        "tokens": 5000,
        "types": 70,
    }
    split["unknown_rate"] = 0.0423
    columns, cells = splits_table({"test": split, "train": {**split, "share": 0.9}})
    first = ["split", "documents", "tokens", "types", "unknown"]
    assert columns == [*first, "characters", "bytes", "paragraphs", "share of text"]
    assert cells[0] == ["train", "1", "5,000", "70", "4.23%", "9", "9", "2", "90.00%"]
    assert cells[1][0] == "test" and cells[1][-1] == ""


@pytest.mark.parametrize(
    ("memories", "named"), [(["none"], "after b"), (["none", "mbpa"], "mbpa after b")]
)
def test_each_part_of_a_matrix_that_is_too_wide_names_its_rows(
    capsys, monkeypatch, memories: list, named: str
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("memlm_cli.tables.on_terminal", lambda: True)
    for module in ("memlm_cli.results.matrix", "stages.tasks.frequent_label"):
        monkeypatch.setattr(f"{module}.frequent_label_scores", lambda matrix: None)
    tasks = ["b", *(f"a-task-of-a-long-name-{n}" for n in range(3))]
    figures = dict.fromkeys(
        ("average", "forgetting", "backward_transfer", "forward_transfer", "intransigence")
    )
    rows = [{"row": name, "matrix": [[0.5] * 4, [0.25] * 4], **figures} for name in memories]
    metrics = {"tasks": tasks, "after": [0, 1], "rows": rows, "method": "seq"}
    show_result(SimpleNamespace(kind="matrix", reference="matrix/1", metrics=metrics))
    lines = capsys.readouterr().err.splitlines()
    assert sum(line.startswith(named) for line in lines) >= 2, "a part each"
