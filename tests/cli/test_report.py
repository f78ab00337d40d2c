"""`memlm report`: one page of a real run."""

import io
import json
import shlex
import shutil
import subprocess
import sys
import webbrowser
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from memlm_cli.app import main
from memlm_cli.reproduce import script
from pipelines.options import differences
from stages.artifacts.store import Store
from stages.pages.lineage import find_reports, lineage_of
from tests.builders.small_commands import SMALL
from tests.cli.conftest import Memlm
from tests.stages.pages.made import Outline

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SHELL = shutil.which("sh") or "sh"
ADDRESS_SPACE = 6 * 10**9
"""Bytes that a process may reserve."""
MEMORY = [
    "--memory",
    "external:k=4,lambda=0.1/0.3,temperature=1",
    "--memory",
    "long:size=4/8,theta=0.3,lambda=0.2",
]


class Made(NamedTuple):
    """A store, its report, and the text that all of it was made from."""

    store: Path
    report: str
    text: Path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """kNN-LM and a cache on a small text."""
    folder = tmp_path_factory.mktemp("report")
    text = folder / "text.txt"
    text.write_text("the cat sees the hen and the dog runs\n" * 30, "utf-8")

    def make(*words: object) -> str:
        printed = io.StringIO()
        with redirect_stdout(printed):
            assert main([*map(str, words), "--store", str(folder / "store")]) == 0
        return printed.getvalue().strip()

    tokens = make(
        "tokenize",
        "--train",
        text,
        "--valid",
        text,
        "--test",
        text,
        "--lowercase",
        "--name",
        "a-text",
    )
    model = make("train", tokens, *SMALL, "--lr", "0.01", "--name", "lm")
    index = make("build-index", make("build-datastore", model), "--index", "flat")
    neighbors = make("precompute-neighbors", index, "--queries", "valid,test", "--k", "4")
    return Made(
        folder / "store",
        make("evaluate", neighbors, *MEMORY, "--exclude", "self", "--name", "both"),
        text,
    )


def test_the_page_of_a_report_holds_its_numbers(memlm: Memlm, made: Made, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    ended = memlm("report", made.report, "--store", made.store, "--output", page)
    assert (ended.code, ended.out) == (0, f"{page}\n")
    outline = Outline(page.read_text("utf-8"))
    told = {data["value"] for data in outline.all("data")}
    metrics = json.loads(Store(made.store).get(made.report).file("metrics.json").read_text("utf-8"))
    for row in metrics["rows"]:
        measures = ("perplexity", "bits_per_character")
        assert {repr(row[name]) for name in measures} <= told


def test_by_default_it_is_written_here_and_told_on_stdout(
    memlm: Memlm, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = memlm("report", "--store", made.store, stdin=f"{made.report}\n")
    assert (ended.code, ended.out) == (0, "memlm-report.html\n")
    assert memlm("report", "model/lm", "--store", made.store).told == []
    page = tmp_path / "memlm-report.html"
    page.write_text(page.read_text("utf-8") + " ", "utf-8")
    assert len(memlm("report", "model/lm", "--store", made.store).told) == 1
    (tmp_path / "memlm-report.html").write_text("mine")
    refused = memlm("report", made.report, "--store", made.store)
    assert refused.code == 2 and "memlm-report.html" in refused.err
    assert (tmp_path / "memlm-report.html").read_text() == "mine"


def test_figures_are_written_beside_it_and_json_names_them(
    memlm: Memlm, made: Made, tmp_path: Path
) -> None:
    arguments = [
        "--store",
        made.store,
        "--output",
        tmp_path / "page.html",
        "--figures",
        tmp_path / "figures",
        "--json",
    ]
    told = json.loads(memlm("report", "tokens/a-text", *arguments).out)
    assert told["path"] == str(tmp_path / "page.html")
    assert sorted(told["figures"]) == sorted(map(str, (tmp_path / "figures").iterdir()))
    assert str(tmp_path / "figures" / "lineage.svg") in told["figures"]


def test_it_needs_no_more_address_space_than_memory(made: Made, tmp_path: Path) -> None:
    """Under `ulimit -v`, as batch systems set it, all charts are drawn."""
    page = tmp_path / "page.html"
    figures = tmp_path / "figures"
    program = (
        "import resource, sys;"
        f"resource.setrlimit(resource.RLIMIT_AS, ({ADDRESS_SPACE}, {ADDRESS_SPACE}));"
        "from memlm_cli.app import main; sys.exit(main())"
    )
    words = ["report", made.report, "--store", made.store, "--output", page, "--figures", figures]
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    outline = Outline(page.read_text("utf-8"))
    drawings = [svg for svg in outline.all("svg") if svg.get("class") == "drawing"]
    assert len(drawings) == len(list(figures.glob("*.svg"))) >= 3


def test_it_opens_in_the_browser(
    memlm: Memlm, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: not opened.append(address))
    page = tmp_path / "page.html"
    assert memlm("report", made.report, "--store", made.store, "--output", page, "--open").code == 0
    assert opened == [page.as_uri()]
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    assert (
        "no browser"
        in memlm("report", made.report, "--store", made.store, "--output", page, "--open").err
    )


def test_what_leads_to_no_report_ends_with_4(memlm: Memlm, text: Path, tmp_path: Path) -> None:
    tokens = memlm("tokenize", "--train", text).reference
    ended = memlm("report", tokens, "--output", tmp_path / "page.html")
    assert ended.code == 4 and "memlm train" in ended.err
    assert memlm("report", "report/unknown").code == 4
    assert not (tmp_path / "page.html").exists()


def test_the_commands_of_a_page_name_the_same_artifacts(memlm: Memlm, made: Made) -> None:
    members = lineage_of(find_reports([made.report], Store(made.store)))
    lines = [
        line
        for line in script(members).replace("\\\n", "").splitlines()
        if line.startswith("memlm")
    ]
    assert len(lines) == len(members) == 6
    for line, reference in zip(lines, members, strict=True):
        again = memlm(*shlex.split(line)[1:], "--store", made.store)
        assert again.reference == reference
        assert "cached" in again.err


def test_the_script_is_one_that_a_shell_reads(memlm: Memlm, made: Made, tmp_path: Path) -> None:
    members = lineage_of(find_reports([made.report], Store(made.store)))
    program = tmp_path / "reproduce.sh"
    program.write_text(script(members), "utf-8")
    assert subprocess.run([SHELL, "-n", program], check=False).returncode == 0


def test_differences_are_dotted_and_what_is_none_was_not_given() -> None:
    config = {"a": 1, "b": {"c": 2, "d": [3]}, "e": None, "f": {"g": 4}}
    assert dict(differences(config, {"a": 1, "b": {"c": 0, "d": [3]}, "e": 5, "f": None})) == {
        "b.c": 2,
        "f.g": 4,
    }


@pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed (Debian: apt-get install chromium)"
)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_it(memlm: Memlm, made: Made, tmp_path: Path, scheme: str) -> None:
    page, picture = tmp_path / "page.html", tmp_path / "page.png"
    assert memlm("report", made.report, "--store", made.store, "--output", page).code == 0
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={tmp_path / 'b'}",
    ]
    if scheme == "dark":
        options += ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"]
    shown = [*options, "--window-size=1000,1600", f"--screenshot={picture}", page.as_uri()]
    subprocess.run([CHROMIUM or "", *shown], capture_output=True, check=True, timeout=90)
    pixels = np.asarray(Image.open(picture).convert("RGB")) / 255
    assert pixels.shape[:2] == (1600, 1000)
    paper, ink = (np.median(pixels), pixels.min() if scheme == "light" else pixels.max())
    assert (paper > 0.95 and ink < 0.3) if scheme == "light" else (paper < 0.2 and ink > 0.7)
    colours = np.unique((pixels * 15).astype(int).reshape(-1, 3), axis=0)
    assert len(colours) > 20  # figures are drawn
