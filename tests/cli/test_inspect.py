"""`memlm inspect`: what it shows where."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from memlm_cli.inspection_text import inspected_text, shown, text_around
from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.inspection.contexts import Context, EnteredContext, LookedUpContext
from stages.inspection.inspect import Inspected, MemoryView, TokenView
from stages.inspection.page import page
from stages.text.excerpt import Excerpt
from tests.cli.conftest import Memlm, largest_file
from tests.stages.small_text import built_index, text_model, text_tokens

TEXT = "the cat sees\nthe dog"
MEMORY = (
    "--memory",
    "external:k=5,temperature=2,lambda=0.4",
    "--memory",
    "long:size=7,theta=0.5,lambda=0.1",
)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("text")
    store = Store(folder / "store")
    return built_index(store, text_model(store, text_tokens(store, folder)))


@pytest.fixture
def inspect(memlm: Memlm, index: Artifact):
    """Runs `memlm inspect INDEX …` in its store."""
    return lambda *options: memlm(
        "inspect", index.reference, "--store", index.store.root, "--device", "cpu", *options
    )


@pytest.mark.parametrize(("token", "said"), [("\n", r"'\n'"), (" cat", "cat"), ("  ", "'  '")])
def test_a_token_is_spelled_in_its_context_as_by_itself(token: str, said: str) -> None:
    assert shown(token) == said
    assert (
        text_around(Excerpt("train", 7, 0, 7, "a", token, "b\n c"))
        == f"a [{' '.join(said.split())}]b c"
    )


def test_a_text_is_told_as_a_table_with_what_it_was_read_from(inspect, index):
    ended = inspect("--text", TEXT, *MEMORY, "--contexts", 2)
    assert (ended.code, ended.err) == (0, "")
    told = json.loads(inspect("--text", TEXT, *MEMORY, "--contexts", 2, "--json").out)
    columns = [
        "position",
        "token",
        "model",
        "datastore",
        "share",
        "cache",
        "share",
        "final",
        "gain",
    ]
    lines = ended.out.splitlines()
    assert lines[0].startswith(index.find("encoder").reference) and lines[0].endswith(" 5")
    assert lines[1].split(", ") == [
        "datastore: external",
        "interpolate",
        "k 5",
        "temperature 2",
        "lambda 0.4",
    ]
    assert lines[3].startswith("share of datastore")
    assert re.split(" {2,}", lines[4]) == columns
    rows = [line.split() for line in lines[5:11]]
    assert (
        [row[1] for row in rows]
        == [token["label"] for token in told["tokens"]]
        == [*TEXT.split()[:3], "<eos>", "the", "dog"]
    )
    assert [float(row[-2]) for row in rows] == pytest.approx(
        [token["final"] for token in told["tokens"]], abs=6e-5
    )
    context = told["tokens"][2]["contexts"][0]
    source = context["source"]
    where = f"{source['split']}, document {source['document']} ({source['name']}), token {source['offset']}"
    assert (where if context["back"] is None else f"{context['back']} back") in ended.out
    assert f"[{context['source']['token'].strip()}]" in ended.out


def test_a_passage_of_a_split_and_a_page(inspect, tmp_path: Path):
    page = tmp_path / "passage.html"
    ended = inspect("--position", 5, "--length", 3, "--html", page, *MEMORY)
    assert ended.code == 0
    assert [row.split()[0] for row in ended.out.splitlines() if row[:1].isdigit()][:3] == [
        "5",
        "6",
        "7",
    ]
    assert ended.told == [f"inspect: wrote {page}"]
    assert page.read_text("utf-8").startswith("<!doctype html>")
    assert "\n36 " in inspect("--position", 5, "--split", "valid").out
    whole = page.read_text("utf-8")
    with largest_file(4000):
        ended = inspect("--position", 7, "--length", 3, "--html", page, *MEMORY)
    assert ended.code == 5
    assert page.read_text("utf-8") == whole and list(tmp_path.iterdir()) == [page]
    assert inspect("--position", 7, "--length", 3, "--html", page, *MEMORY).code == 0
    assert page.read_text("utf-8") != whole
    page.write_text("mine")
    assert inspect("--position", 7, "--length", 3, "--html", page, *MEMORY).code == 2
    assert page.read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ([], 2, "Name one passage"),
        (["--text", "the", "--position", "3"], 2, "Name one passage"),
        (["--text", "the", "--split", "test"], 2, "--split goes with --position"),
        (["--text", " "], 2, "no token"),
        (
            ["--position", "3", "--memory", "knn-lm"],
            2,
            "one number is needed for temperature, lambda",
        ),
        (["--position", "999999"], 2, "is not in test, which has tokens 0 to"),
        (["--position", "3", "--split", "tset"], 4, "did you mean 'test'?"),
        (
            ["--position", "3", "--report", "report/000000000000"],
            4,
            "report/000000000000 is not in",
        ),
        (
            ["--text", "the", "--html", "/nowhere/at/all.html"],
            2,
            "--html /nowhere/at/all.html",
        ),
    ],
)
def test_what_is_wrong_is_said(inspect, options, code, message):
    ended = inspect(*options)
    assert (ended.code, ended.out) == (code, "")
    assert message in ended.err


def test_a_reference_that_is_not_there_is_said_before_a_passage_is_asked_for(
    memlm: Memlm, tmp_path: Path
):
    ended = memlm("inspect", "model/000000000000", "--store", tmp_path)
    assert (ended.code, "model/000000000000" in ended.err) == (4, True)


def test_tokens_that_look_like_markup_are_shown_as_they_are():
    token = TokenView(
        **{
            "position": 0,
            "id": 7,
            "label": "[/red]",
            "text": "[/red]",
            "model": 0.1,
            "final": 0.9,
            "gain": 2.2,
        },
        **{"memories": [], "columns": {}, "contexts": [], "entered": []},
    )
    for terminal in (True, False):
        shown = inspected_text(
            Inspected("model/0123456789ab", "test", 0, [], [token]), terminal=terminal
        )
        assert "[/red]" in shown
        assert ("\x1b[32m" in shown) is terminal


def test_what_would_move_the_cursor_is_spelled_out():
    source = Excerpt("train", 5, 0, 5, "the \x1b[2J", "\x07", "\n cat")
    token = TokenView(
        **{
            "position": 0,
            "id": 7,
            "label": "\x1b[2J",
            "text": "\x1b[2J",
            "model": 0.1,
            "final": 0.9,
            "gain": 2.2,
        },
        **{
            "memories": [MemoryView(0.5, 0.4)],
            "columns": {},
            "contexts": [Context(0, 0.5, 0.1, True, None, source)],
        },
        entered=[EnteredContext(True, source)],
        looked_up=[LookedUpContext(0.25, 9, True, source)],
    )
    memory = {"sources": ["external"], "reader": "interpolate", "numbers": "given"}
    shown = inspected_text(
        Inspected("model/0123456789ab", "test", 0, [memory], [token]), terminal=False
    )
    assert shown.replace("\n", "").isprintable()
    assert shown.count("the \\x1b[2J[\\x07] cat") == 3
    assert "0.2500" in shown and "9 back" in shown


def test_what_shares_of_several_memories_are_is_said_on_the_page_too():
    token = TokenView(
        **{
            "position": 0,
            "id": 7,
            "label": "a",
            "text": "a",
            "model": 0.1,
            "final": 0.9,
            "gain": 2.2,
        },
        **{
            "memories": [MemoryView(0.5, 0.3), MemoryView(0.5, 0.4)],
            "columns": {},
            "contexts": [],
            "entered": [],
        },
    )
    memories = [
        {"sources": [s], "reader": "interpolate", "numbers": "given"} for s in ("external", "long")
    ]
    found = Inspected("model/0123456789ab", "test", 0, memories, [token])
    said = "share of datastore and cache: of the final probabilities, the rest is the model"
    assert said in inspected_text(found, terminal=False) and said in page(found)
    alone = Inspected("model/0123456789ab", "test", 0, [], [replace(token, memories=[])])
    assert "share" not in inspected_text(alone, terminal=False)


@pytest.fixture(scope="module")
def report(index: Artifact) -> str:
    """An evaluation with token scores."""
    from memlm_cli.app import main

    common = ["--store", str(index.store.root), "--device", "cpu", "--name", "scored"]
    assert main(["evaluate", index.reference, *MEMORY, "--save-token-scores", *common]) == 0
    return "report/scored"


def test_a_report_chooses_passages(inspect, index, report, tmp_path: Path):
    page = tmp_path / "passages.html"
    options = ["--report", report, "--select", "gains,losses,rare", "--passages", 2, "--length", 6]
    ended = inspect(*options, "--html", page, "--json")
    assert (ended.code, ended.err) == (0, f"inspect: wrote {page}\n")
    told = json.loads(ended.out)
    assert {one["chosen"] for one in told} <= {"gains", "losses", "rare"}
    gains = [
        sum(token["gain"] for token in one["tokens"]) for one in told if one["chosen"] == "gains"
    ]
    losses = [
        sum(token["gain"] for token in one["tokens"]) for one in told if one["chosen"] == "losses"
    ]
    assert gains == sorted(gains, reverse=True) and gains[0] > 0 and losses[0] < 0
    assert gains == pytest.approx(
        [one["nats"] for one in told if one["chosen"] == "gains"], abs=1e-3
    )
    html = page.read_text("utf-8")
    assert html.count("<section") == len(told)
    assert html.count("<details") == sum(len(one["tokens"]) for one in told)
    ids = re.findall(r'id="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', html)) <= set(ids)
    one = inspect("--report", report, "--select", "gains", "--passages", 1, "--html", page)
    assert one.code == 0 and page.read_text("utf-8").count("<section") == 1
    lines = inspect(*options).out.splitlines()
    assert f"{told[0]['start']:,} to {told[0]['start'] + 5:,}" in lines[0]


def test_a_report_brings_its_model_and_its_memory_where_no_reference_is_named(
    memlm, inspect, index, report
):
    options = ["--report", report, "--position", 3, "--length", 4]
    alone = memlm("inspect", *options, "--store", index.store.root, "--device", "cpu")
    assert (alone.code, alone.out) == (0, inspect(*options).out)
    piped = memlm(
        "inspect",
        *options,
        "--store",
        index.store.root,
        stdin=f"{index.find('encoder').reference}\n",
    )
    assert piped.out == alone.out
    written = memlm("generate", "--report", report, "--max-tokens", 2, "--store", index.store.root)
    assert written.code == 0, written.err
    assert memlm("inspect", "--position", 3, "--store", index.store.root).code == 4


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--select", "gains"], 2, "name it with --report"),
        (["--select", "gains", "--text", "the"], 2, "Name one passage"),
        (
            ["--select", "gains", "--split", "test", "--report", "report/scored"],
            2,
            "--split goes with --position",
        ),
        (["--position", "3", "--passages", "2"], 2, "--passages goes with --select"),
        (["--select", "gain", "--report", "report/scored"], 2, "did you mean 'gains'?"),
    ],
)
def test_what_no_report_can_choose_is_refused(inspect, report, options, code, message):
    ended = inspect(*options)
    assert (ended.code, ended.out) == (code, "")
    assert message in ended.err


def test_a_report_without_scores_or_memory_chooses_nothing(inspect, index, memlm):
    made = memlm(
        "evaluate",
        index.reference,
        "--memory",
        "none",
        "--store",
        index.store.root,
        "--save-token-scores",
    )
    ended = inspect("--report", made.reference, "--select", "gains")
    assert (ended.code, made.reference in ended.err) == (2, True)
    without = ["--set", "save_token_scores=false", "--store", index.store.root]
    bare = memlm("evaluate", index.reference, *MEMORY, *without)
    ended = inspect("--report", bare.reference, "--select", "gains")
    assert (ended.code, "--save-token-scores" in ended.err) == (4, True)
