"""`--log-file`: what went to stderr, with times, without control codes and bars; tracebacks of bugs."""

import re
from pathlib import Path

import pytest

from memlm_cli import console
from memlm_cli.console import close_log, open_log
from memlm_cli.progress import ConsoleReporter
from memlm_cli.tables import show_table
from tests.cli.conftest import Memlm
from tests.cli.test_console import FIGURES, Clock, Screen

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d ")

CODE = re.compile(r"^exit code (\d+)")


def messages(path: Path) -> list[str]:
    """Lines of a log, each of which begins with a time."""
    lines = path.read_text("utf-8").splitlines()
    assert all(TIME.match(line) for line in lines), lines
    return [TIME.sub("", line, count=1) for line in lines]


def test_a_log_has_the_command_what_it_said_and_how_it_ended(memlm: Memlm, text: Path, tmp_path: Path) -> None:
    log = tmp_path / "memlm.log"
    splits = [word for split in ("train", "test") for word in (f"--{split}", text)]
    ended = memlm("tokenize", *splits, "--log-file", log)
    first = messages(log)
    assert first[0].split()[:3] == ["$", "memlm", "tokenize"]
    assert f"tokenize: {ended.reference} made" in first
    assert set(filter(str.strip, ended.err.splitlines())) <= set(first)
    assert CODE.findall(first[-1]) == ["0"]
    memlm("artifacts", "show", "tokens/none", "--log-file", log)
    added = messages(log)[len(first) :]
    assert added[0].split()[:4] == ["$", "memlm", "artifacts", "show"]
    assert CODE.findall(added[-1]) == ["4"]
    assert "tokens/none" in added[-2]


def test_a_bug_leaves_its_traceback_in_the_log(memlm: Memlm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*_: object) -> None:
        raise ZeroDivisionError("one over none")

    monkeypatch.setattr("pipelines.recipe.shipped_recipes", bug)
    log = tmp_path / "memlm.log"
    ended = memlm("recipes", "--log-file", log)
    assert (ended.code, ended.err.strip().endswith(str(log))) == (1, True)
    assert any("ZeroDivisionError" in line for line in messages(log))


def test_a_log_that_cannot_be_written_is_said_before_anything_starts(memlm: Memlm, tmp_path: Path) -> None:
    ended = memlm("recipes", "--log-file", tmp_path / "none" / "a.log")
    assert (ended.code, ended.out) == (2, "")
    assert "--log-file" in ended.err


def test_a_bar_is_lines_and_styles_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Screen())
    log, clock = tmp_path / "a.log", Clock()
    open_log(log, ["train"])
    with ConsoleReporter("train", clock) as reporter:
        for step in range(40):
            reporter.progress(step, 1000, "steps", loss=4.25)
            clock.now += 1.0
        reporter.info("half \x1b[2Jway")
    show_table("A table", ("a",), [(("b", "red"),)])
    monkeypatch.setattr(console, "_show_warning", lambda *_: None)
    console._warned(UserWarning("look out"), UserWarning, "f.py", 1)
    close_log(0)
    told = messages(log)
    assert any(FIGURES.findall(line) == ["30", "1,000", "3", "4.25", "16:10"] for line in told)
    assert r"train: half \x1b[2Jway" in told
    assert any("look out" in line for line in told)
    assert not any("\x1b" in line or "|" in line for line in told)


def test_a_full_disk_stops_the_log_and_not_the_work(memlm: Memlm) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    ended = memlm("presets", "--log-file", "/dev/full")
    assert ended.code == 0
    assert ended.err.count("warning: ") == 1
