"""`memlm inspect`: what it shows where."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from memlm_cli.inspection_text import inspected_text
from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.inspection.contexts import Context
from stages.inspection.entered import EnteredContext
from stages.inspection.inspect import Inspected, MemoryView, TokenView
from stages.text.excerpt import Excerpt
from tests.cli.conftest import Memlm
from tests.stages.small_text import built_index, text_model, text_tokens

TEXT = "the cat sees\nthe dog"
MEMORY = ("--memory", "external:k=5,temperature=2,lambda=0.4", "--memory", "long:size=7,theta=0.5,lambda=0.1")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("text")
    store = Store(folder / "store")
    return built_index(store, text_model(store, text_tokens(store, folder)))


@pytest.fixture
def inspect(memlm: Memlm, index: Artifact):
    """Runs `memlm inspect INDEX …` in its store."""
    return lambda *options: memlm("inspect", index.reference, "--store", index.store.root, "--device", "cpu", *options)


def test_a_text_is_told_as_a_table_with_what_it_was_read_from(inspect, index):
    ended = inspect("--text", TEXT, *MEMORY, "--contexts", 2)
    assert (ended.code, ended.err) == (0, "")
    told = json.loads(inspect("--text", TEXT, *MEMORY, "--contexts", 2, "--json").out)
    columns = ["position", "token", "model", "datastore", "λ datastore", "cache", "λ cache", "final", "gain"]
    lines = ended.out.splitlines()
    assert lines[0] == f"{index.find('encoder').reference}, passage, tokens 0 to 5"
    assert lines[1] == "datastore: external, interpolate, k 5, temperature 2, lambda 0.4"
    assert re.split(" {2,}", lines[3]) == columns
    rows = [line.split() for line in lines[4:10]]
    assert (
        [row[1] for row in rows]
        == [token["label"] for token in told["tokens"]]
        == [*TEXT.split()[:3], "<eos>", "the", "dog"]
    )
    assert [float(row[-2]) for row in rows] == pytest.approx([token["final"] for token in told["tokens"]], rel=1e-3)
    context = told["tokens"][2]["contexts"][0]
    source = context["source"]
    where = f"{source['split']}, document {source['document']} ({source['name']}), token {source['offset']}"
    assert (where if context["back"] is None else f"{context['back']} back") in ended.out
    assert f"[{context['source']['token'].strip()}]" in ended.out


def test_a_passage_of_a_split_and_a_page(inspect, tmp_path: Path):
    page = tmp_path / "passage.html"
    ended = inspect("--position", 5, "--length", 3, "--html", page, *MEMORY)
    assert ended.code == 0
    assert "test, tokens 5 to 7" in ended.out
    assert ended.err == f"inspect: wrote {page}\n"
    assert page.read_text("utf-8").startswith("<!doctype html>")
    assert "valid, tokens 5 to 36" in inspect("--position", 5, "--split", "valid").out


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ([], 2, "Name one passage"),
        (["--text", "the", "--position", "3"], 2, "Name one passage"),
        (["--text", "the", "--split", "test"], 2, "--split goes with --position"),
        (["--text", " "], 2, "no token"),
        (["--position", "3", "--memory", "knn-lm"], 2, "one number is needed for temperature, lambda"),
        (["--position", "999999"], 2, "is not in test, which has tokens 0 to"),
        (["--position", "3", "--split", "tset"], 4, "did you mean 'test'?"),
        (["--position", "3", "--report", "report/000000000000"], 4, "report/000000000000 is not in"),
        (
            ["--text", "the", "--html", "/nowhere/at/all.html"],
            2,
            "--html /nowhere/at/all.html cannot be written",
        ),
    ],
)
def test_what_is_wrong_is_said(inspect, options, code, message):
    ended = inspect(*options)
    assert (ended.code, ended.out) == (code, "")
    assert message in ended.err


def test_tokens_that_look_like_markup_are_shown_as_they_are():
    token = TokenView(
        **{"position": 0, "id": 7, "label": "[/red]", "text": "[/red]", "model": 0.1, "final": 0.9, "gain": 2.2},
        **{"memories": [], "columns": {}, "contexts": [], "entered": []},
    )
    for terminal in (True, False):
        shown = inspected_text(Inspected("model/0123456789ab", "test", 0, [], [token]), terminal=terminal)
        assert "[/red]" in shown
        assert ("\x1b[32m" in shown) is terminal


def test_what_would_move_the_cursor_is_spelled_out():
    source = Excerpt("train", 5, 0, 5, "the \x1b[2J", "\x07", "\n cat")
    token = TokenView(
        **{"position": 0, "id": 7, "label": "\x1b[2J", "text": "\x1b[2J", "model": 0.1, "final": 0.9, "gain": 2.2},
        **{"memories": [MemoryView(0.5, 0.4)], "columns": {}, "contexts": [Context(0, 0.5, 0.1, True, None, source)]},
        entered=[EnteredContext(True, source)],
    )
    memory = {"sources": ["external"], "reader": "interpolate", "numbers": "given"}
    shown = inspected_text(Inspected("model/0123456789ab", "test", 0, [memory], [token]), terminal=False)
    assert shown.replace("\n", "").isprintable()
    assert shown.count("the \\x1b[2J[\\x07] cat") == 2


@pytest.mark.parametrize("command", ["inspect", "generate"])
def test_help_imports_nothing_heavy(command):
    program = (
        "import sys\n"
        "from memlm_cli.app import main\n"
        f"main([{command!r}, '--help'])\n"
        "heavy = {'torch', 'faiss', 'zarr', 'numpy', 'tokenizers', 'jinja2'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--memory" in done.stdout
