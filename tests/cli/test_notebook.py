"""`import memlm`: what it gives is what the command line gives."""

import json
import os
import runpy
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memlm_cli import notebook as memlm
from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from tests.builders.small_commands import SMALL
from tests.cli.conftest import Memlm
from tests.notebooks import TOPLEVEL, executed
from tests.stages.small_text import built_index, text_model, text_tokens

DOCS = Path(__file__).parent.parent.parent / "docs"
TEXT = "the cat sees\nthe dog"
READINGS = ("external:k=5,temperature=2,lambda=0.4", "long:size=7,theta=0.5,lambda=0.1")
COLUMNS = ["id", "token", "logp", "logp_lm", "gain"]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("notebook")
    store = Store(folder / "store")
    return built_index(store, text_model(store, text_tokens(store, folder)))


@pytest.fixture
def store(index: Artifact) -> memlm.Store:
    return memlm.open(index.store.root)


def test_stages_have_the_ids_of_the_command_line(memlm_: Memlm, text: Path, tmp_path: Path) -> None:
    store = memlm.open()
    assert store.path == tmp_path / "store"
    tokens = memlm.run(
        "tokenize", train=[text], valid=text, test=text, tokenizer="word", name="small"
    )
    assert isinstance(tokens, memlm.Tokens)
    files = [f"--{split}={text}" for split in ("train", "valid", "test")]
    ended = memlm_("tokenize", *files, "--tokenizer", "word")
    assert (
        "cached" in ended.err
        and ended.reference == tokens.reference == store["tokens/small"].reference
    )
    assert [artifact.reference for artifact in store.list("tokens")] == [tokens.reference]
    assert store.list("report") == []
    with pytest.raises(memlm.UsageError, match="tokens"):
        store.list("tokans")
    assert list(tokens.ids) == ["train", "valid", "test"]
    assert tokens.ids["train"].shape == (tokens.metrics["splits"]["train"]["tokens"],)
    stored = tokens.path / "tokens.zarr" / "train" / "ids"
    assert stored.is_dir() and len(tokens.ids["test"][:3]) == 3
    model = memlm_("train", tokens.reference, *SMALL).reference
    asked = {"fraction": 0.5, "key": "hidden", "rows_per_shard": None}
    datastore = store.run("build-datastore", model, **asked)
    assert (
        memlm_("build-datastore", model, "--fraction=0.5", "--key=hidden").reference
        == datastore.reference
    )
    found = memlm.run("build-index", datastore, index="flat", recall="none")
    assert (
        memlm_("build-index", datastore.reference, "--index=flat", "--recall=none").reference
        == found.reference
    )
    report = memlm.run(
        "evaluate", found, memory=list(READINGS), exclude="self", save_token_scores=True
    )
    memory = [word for reading in READINGS for word in ("--memory", reading)]
    again = memlm_("evaluate", found.reference, *memory, "--exclude", "self", "--save-token-scores")
    assert again.reference == report.reference
    assert {role: one.reference for role, one in report.inputs.items()}["index"] == found.reference


@pytest.fixture
def memlm_(memlm: Memlm) -> Memlm:
    """The command line, under a name that leaves `memlm` to the module."""
    return memlm


def test_settings_may_be_nested(index: Artifact, store: memlm.Store) -> None:
    tokens = index.find("corpus").reference
    settings: dict[str, Any] = {
        "steps": 2,
        "optimizer": {"lr": 0.5},
        "model": {"width": 8, "heads": 2, "layers": 1},
    }
    made = store.run("train", tokens, segment_length=8, batch_tokens=32, **settings)
    assert (
        made.config["steps"],
        made.config["optimizer"]["lr"],
        made.config["model"]["width"],
    ) == (2, 0.5, 8)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda s, i: s.run("evalute"),
            memlm.UsageError,
            "no stage 'evalute'; did you mean 'evaluate'",
        ),
        (
            lambda s, i: s.run("evaluate"),
            memlm.UsageError,
            "evaluate reads model or index or neighbors: name one",
        ),
        (
            lambda s, i: s.run("build-index", i, recalls=3),
            memlm.UsageError,
            "There is no setting 'recalls'",
        ),
        (
            lambda s, i: s.run("build-index", i, metric="cosine"),
            memlm.UsageError,
            "metric: input should be 'l2' or 'ip'",
        ),
        (lambda s, i: s.run("tokenize", "/nowhere"), memlm.DataError, "/nowhere does not exist"),
        (lambda s, i: s["model/none"], memlm.ArtifactError, "model/none is not in"),
        (lambda s, i: i.search([[1, 2]], 3), memlm.UsageError, "queries are"),
        (
            lambda s, i: i.search(i.inputs["datastore"].keys[:1], 0),
            memlm.UsageError,
            "k is a whole number, 1",
        ),
        (
            lambda s, i: i.search(i.inputs["datastore"].keys[:1], 2.5),
            memlm.UsageError,
            "k is a whole number",
        ),
        (
            lambda s, i: i.search(i.inputs["datastore"].keys[:1], 10**9),
            memlm.UsageError,
            "rows of the datastore",
        ),
        (lambda s, i: i.search("the cat", 3), memlm.UsageError, "queries are numbers"),
        (lambda s, i: s[None], memlm.UsageError, "reference is an artifact, kind/id"),
        (lambda s, i: s.read(None), memlm.UsageError, "source is an artifact, kind/id"),
        (lambda s, i: s.read(i, report=7), memlm.UsageError, "report is an artifact, kind/id"),
        (lambda s, i: s.read(i).score(None), memlm.UsageError, r"text is a text \(str\), not None"),
        (
            lambda s, i: s.read(i).score(b"the cat"),
            memlm.UsageError,
            r"text is a text \(str\), not b'the cat'",
        ),
        (lambda s, i: s.read(i).generate([3]), memlm.UsageError, r"prompt is a text"),
        (
            lambda s, i: s.read(i).score(TEXT).neighbors(0),
            memlm.UsageError,
            "k is a whole number, 1",
        ),
        (
            lambda s, i: next(i.inputs["datastore"].batches(0)),
            memlm.UsageError,
            "rows is a whole number, 1",
        ),
        (lambda s, i: s.read(i, memory="knn-lm"), memlm.UsageError, "one number is needed"),
        (lambda s, i: s.read(i, memory="none", report="x"), memlm.UsageError, "give one of them"),
        (lambda s, i: s.read(i, contxt=3), memlm.UsageError, "did you mean 'context'"),
        (
            lambda s, i: s.read(i, memory="none").score(""),
            memlm.UsageError,
            "no token that could be read",
        ),
    ],
)
def test_errors_are_those_of_the_exit_codes(
    call, error, message, index: Artifact, store: memlm.Store
) -> None:
    with pytest.raises(error, match=message):
        call(store, store[index.reference])
    assert issubclass(error, memlm.MemlmError)


def test_arrays_are_those_on_disk_and_an_index_finds_its_rows(
    index: Artifact, store: memlm.Store
) -> None:
    found = store[index.reference]
    datastore = found.inputs["datastore"]
    assert isinstance(found, memlm.Index) and isinstance(datastore, memlm.Datastore)
    parts = list(datastore.batches(50))
    assert np.array_equal(np.concatenate([keys for keys, _ in parts]), datastore.keys[:])
    assert np.array_equal(np.concatenate([values for _, values in parts]), datastore.values[:])
    ids, distances = found.search(datastore.keys[:40], 3)
    gaps = ((datastore.keys[:40][:, None].astype(np.float64) - datastore.keys[:][None]) ** 2).sum(
        -1
    )
    assert ids.shape == distances.shape == (40, 3) and not distances[:, 0].any()
    np.testing.assert_allclose(distances, np.sort(gaps)[:, :3], rtol=1e-4, atol=1e-4)
    assert found.search(datastore.keys[0], 2)[0].shape == (1, 2)
    assert found.search(datastore.keys[0], len(datastore.values))[0].min() >= 0


def test_a_text_is_scored_as_inspect_tells_it(
    memlm_: Memlm, index: Artifact, store: memlm.Store
) -> None:
    root = ["--store", index.store.root, "--device", "cpu"]
    words = [word for reading in READINGS for word in ("--memory", reading)]
    told = json.loads(
        memlm_(
            "inspect", index.reference, *root, "--text", TEXT, *words, "--contexts", 2, "--json"
        ).out
    )
    scores = store.read(index.reference, memory=READINGS, device="cpu").score(TEXT)
    assert list(scores) == COLUMNS and isinstance(scores, dict)
    assert scores["id"].tolist() == [token["id"] for token in told["tokens"]]
    assert np.exp(scores["logp"]) == pytest.approx([token["final"] for token in told["tokens"]])
    assert scores["gain"] == pytest.approx(scores["logp"] - scores["logp_lm"])
    whole = store.read(index.reference, memory=READINGS, device="cpu").distributions(TEXT)
    assert np.exp(whole.astype(np.float64)).sum(1) == pytest.approx(1, abs=1e-4)
    assert whole[np.arange(len(whole)), scores["id"]] == pytest.approx(scores["logp"], abs=1e-4)
    near = scores.neighbors(2)
    contexts = [context for token in told["tokens"] for context in token["contexts"]]
    assert near["weight"] == pytest.approx([context["weight"] for context in contexts])
    assert near["next"].tolist() == [context["source"]["token"] for context in contexts]
    assert (
        scores.page().html.count("<details") == len(scores["id"])
        and "<iframe" in scores._repr_html_()
    )


def test_text_is_written_as_generate_writes_it(
    memlm_: Memlm, index: Artifact, store: memlm.Store
) -> None:
    options = ["--prompt", "the cat", "--max-tokens", 9, "--seed", 3, "--memory", READINGS[0]]
    told = memlm_(
        "generate", index.reference, "--store", index.store.root, "--device", "cpu", *options
    )
    reader = store.read(store[index.reference], memory=READINGS[0], device="cpu")
    assert reader.generate("the cat", max_tokens=9, seed=3) + "\n" == told.out
    assert [memory["k"] for memory in reader.memories] == [5]


def test_a_report_is_columns_and_a_page(index: Artifact, store: memlm.Store) -> None:
    asked = {"memory": READINGS, "exclude": "self", "device": "cpu", "split": "test"}
    report = store.run("evaluate", index.reference, **asked)
    assert isinstance(report, memlm.Report)
    table, tokens = report.table(), report.tokens()
    assert table["perplexity"].tolist() == [row["perplexity"] for row in report.metrics["rows"]]
    assert table["row"][0] == "plain"
    assert np.exp(-tokens["logp"].astype(np.float64).mean()) == pytest.approx(
        table["perplexity"][1], rel=1e-5
    )
    assert tokens["gain"] == pytest.approx(tokens["logp"] - tokens["logp_lm"])
    assert {"token", "logp_memory_1", "logp_memory_2"} <= tokens.keys()
    assert len({len(column) for column in tokens.values()}) == 1
    page = report.page()
    assert report.reference in page.html and "srcdoc" in report._repr_html_()
    assert page.figures and all(
        figure._repr_svg_().startswith("<svg") for figure in page.figures.values()
    )
    without = store.run("evaluate", index.reference, save_token_scores=False, **asked)
    assert isinstance(without, memlm.Report)
    with pytest.raises(memlm.ArtifactError):
        without.tokens()


def test_memlm_is_imported_at_once_and_is_the_notebook_module() -> None:
    module = runpy.run_path(str(TOPLEVEL / "memlm.py"))
    assert all(module["__getattr__"](name) is getattr(memlm, name) for name in module["__all__"])
    heavy = "import memlm_cli.notebook, sys; print([m for m in ('torch', 'faiss', 'zarr') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


INSTALLED = """
import memlm
from importlib.metadata import distribution
from pathlib import Path
files = [str(file.locate()) for file in distribution("memlm").files]
assert str(Path(memlm.__file__)) in files or str(Path(memlm.__file__).resolve()) in files, memlm.__file__
print(memlm.open("store").path, *memlm.__all__)
"""


def test_memlm_is_imported_once_it_is_installed(tmp_path: Path) -> None:
    """From the distribution itself, in a folder that has nothing of the repository."""
    try:
        distribution("memlm")
    except PackageNotFoundError:
        pytest.skip("memlm is not installed: pip install -e .")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", INSTALLED]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, ["store", *memlm.__all__]), done.stderr


def test_what_is_built_has_the_module_at_its_top() -> None:
    """As an installation that was made before the build changed cannot show."""
    build = tomllib.loads((DOCS.parent / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"][
        "build"
    ]
    included = build["targets"]["wheel"]["force-include"]
    assert {DOCS.parent / source: name for source, name in included.items()} == {
        TOPLEVEL / "memlm.py": "memlm.py"
    }


def test_what_is_public_is_on_the_page() -> None:
    page = (DOCS / "how-to/notebook.md").read_text("utf-8")
    shown = [
        name
        for name in memlm.__all__
        if name not in ("Artifact", "Page", "Reader", "Scores", "Store")
    ]
    assert [name for name in shown if name not in page] == []


def test_the_notebook_of_the_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOPLEVEL))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").mkdir()
    for number in range(20):
        topic = (
            f"Topic {number}\n\nA statement of kind {number} binds a name to the object that it makes.\n"
            * 8
        )
        (tmp_path / "text" / f"{number:02}.txt").write_text(topic)
    notebook = json.loads((DOCS / "tutorials/notebook.ipynb").read_text("utf-8"))
    text = json.dumps(notebook).replace("builtin:pydocs", "text").replace("100:103", "10:13")
    found = executed(json.loads(text), steps=4)
    code = [cell for cell in found["cells"] if cell["cell_type"] == "code"]
    kept = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    kinds = [[sorted(o.get("data", {"text": 0})) for o in cell["outputs"]] for cell in code]
    assert kinds == [[sorted(o.get("data", {"text": 0})) for o in cell["outputs"]] for cell in kept]


def test_the_store_is_that_of_the_environment_else_the_default(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MEMLM_STORE", raising=False)
    assert memlm.open().path == Path("memlm-store")
    monkeypatch.setenv("MEMLM_STORE", "of-environment")
    assert memlm.open().path == Path("of-environment")
    tokens = memlm.run("tokenize", train=[str(text)], tokenizer="byte")
    assert tokens.store.path == Path("of-environment")
    with pytest.raises(memlm.DataError):
        memlm.run("tokenize", train=["nothing.txt"])


SCRIPT = """
from memlm_cli import notebook as memlm
from stages.text import spool

spool.SHARD_CHARACTERS = 10  # so that there is work for two

def work():
    store = memlm.open({store!r})
    print(store.run("tokenize", train=[{text!r}], tokenizer="byte", workers=2).reference)

{guard}work()
"""


@pytest.mark.parametrize("guard", ["", "if __name__ == '__main__': "])
def test_workers_of_a_script_end(guard: str, text: Path, tmp_path: Path) -> None:
    """Each worker imports the script; without a guard it waited for its own parent for ever."""
    script = tmp_path / "script.py"
    store = tmp_path / "store"
    script.write_text(SCRIPT.format(store=str(store), text=str(text), guard=guard))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, cwd=DOCS.parent, timeout=100,
        env={**os.environ, "PYTHONPATH": str(DOCS.parent)},
    )  # fmt: skip
    if guard:
        assert done.returncode == 0 and done.stdout.startswith("tokens/"), done.stderr
    else:
        assert "UsageError: Each worker imports the script that was run" in done.stderr
        assert done.returncode == 1 and not done.stdout
