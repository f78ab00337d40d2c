"""Progress as a line now and then, answers to readers that have gone away."""

import io
import re
import subprocess
import sys
import time
from contextlib import redirect_stderr
from pathlib import Path
from threading import enumerate as enumerate_threads

import pytest

from memlm_cli.console import answer, answer_part, say
from memlm_cli.progress import ConsoleReporter
from memlm_cli.tables import show_table
from tests.builders.limits import limit
from tests.cli.conftest import Screen

FIGURES = re.compile(r"\d[\d:,.]*\b")


def waited(command: str, seconds: int) -> str:
    """What is shown of work of which nothing else is known."""
    return f"{command}: working, {seconds} s"


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_without_a_terminal_progress_is_a_line_every_30_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    with ConsoleReporter("train", clock) as reporter:
        for step in range(100):
            reporter.progress(step, 1000, "steps", loss=4.25, tokens_per_second=6670.4)
            clock.now += 1.0
    lines = capsys.readouterr().err.splitlines()
    assert [FIGURES.findall(line) for line in lines] == [
        ["30", "1,000", "3", "4.25", "6,670", "16:10"],
        ["60", "1,000", "6", "4.25", "6,670", "15:40"],
        ["90", "1,000", "9", "4.25", "6,670", "15:10"],
    ]


HOSTILE = "a\x1b]0;owned\x07\x1b[31mred\rb\x9b2J\u202eevil\ttab\nline"
SPELLED = r"a\x1b]0;owned\x07\x1b[31mred\rb\x9b2J\u202eevil" + "\ttab\nline"


def test_nothing_from_data_commands_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = (("stderr", say, SPELLED), ("stdout", answer, HOSTILE), ("stdout", answer_part, HOSTILE))
    for stream, write, piped in ways:
        monkeypatch.setattr(f"sys.{stream}", screen := Screen())
        write(HOSTILE)
        assert screen.getvalue().removesuffix("\n") == SPELLED
        monkeypatch.setattr(f"sys.{stream}", pipe := io.StringIO())
        write(HOSTILE)
        assert pipe.getvalue().removesuffix("\n") == piped


def test_styles_of_memlm_itself_reach_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", screen := Screen())
    say("\x1b[1mbold\x1b[0m \x1b[2J", styled=True)
    assert screen.getvalue() == "\x1b[1mbold\x1b[0m \\x1b[2J\n"


def test_time_left_counts_only_what_this_run_did(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with ConsoleReporter("train", clock) as reporter:
        reporter.progress(900, 1000, "steps")
        clock.now = 30.0
        reporter.progress(910, 1000, "steps")
    assert FIGURES.findall(capsys.readouterr().err) == ["910", "1,000", "91", "4:30"]


def test_time_left_falls_while_nothing_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with ConsoleReporter("evaluate", clock) as reporter:
        reporter.progress(0, 4, "shards")
        clock.now = 70.0
        reporter.progress(2, 4, "shards")
        for clock.now in (100.0, 130.0, 160.0):
            reporter._tick()
    lines = [FIGURES.findall(line) for line in capsys.readouterr().err.splitlines()]
    assert lines == [["2", "4", "50", left] for left in ("1:10", "40.0", "10.0", "90")]


def test_a_bar_shows_the_time_left_at_the_mean_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", screen := Screen())
    clock = Clock()
    with ConsoleReporter("train", clock) as reporter:
        reporter.progress(0, 100, "steps")
        clock.now = 10.0
        reporter.progress(10, 100, "steps", tokens_per_second=512.0)
        reporter._tick()
        assert FIGURES.findall(screen.getvalue().rpartition("\r")[2])[-2:] == ["1:30", "512"]
        clock.now = 15.0
        reporter._tick()
        assert FIGURES.findall(screen.getvalue().rpartition("\r")[2])[-2:] == ["1:25", "512"]


def test_messages_name_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with ConsoleReporter("build-index") as reporter:
        reporter.info("resumed")
        reporter.warning("few tokens")
    assert re.findall("^build-index: (.*)", capsys.readouterr().err, re.M) == [
        "resumed",
        "warning: few tokens",
    ]


def test_of_several_processes_only_the_first_speaks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with ConsoleReporter("train") as reporter:
        reporter.info("resumed: 3 of 12 steps")
        reporter.warning("few tokens")
    answer("model/0123456789ab")
    show_table("", ("a",), [("b",)])
    assert capsys.readouterr() == ("", "")
    say("an error")
    assert capsys.readouterr().err == "an error\n"


def test_a_bar_shows_figures_and_starts_anew_for_other_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stderr", screen := Screen())
    with ConsoleReporter("train") as bar:
        bar.progress(1, 4, "shards")
        bar.progress(4, 4, "shards", loss=2.5)
        assert FIGURES.findall(screen.getvalue().rpartition("\r")[2])[-4:] == [
            "4",
            "4",
            "00:00",
            "2.5",
        ]
        bar.info("half way")
        assert screen.getvalue().split("\r")[-2:][0] == "train: half way\n"
        bar.progress(1, 9, "steps")
        assert "1/9" in screen.getvalue().rpartition("\r")[2]
    assert screen.getvalue().split("\r")[-2].strip() == ""


def test_a_bar_makes_room_for_an_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr", screen := Screen())
    with ConsoleReporter("artifacts verify") as reporter:
        with reporter.aside():
            answer("before")
        reporter.progress(1, 4, "MB read")
        with reporter.aside():
            cleared = screen.getvalue().rpartition("\r")[2]
            answer("between")
        assert "1/4" in screen.getvalue().rpartition("\r")[2]
    assert cleared.strip() == ""
    assert capsys.readouterr().out == "before\nbetween\n"


@pytest.mark.parametrize(("writer", "stream"), [("answer", "stdout"), ("say", "stderr")])
def test_writing_to_a_reader_that_has_gone_away_is_no_error(writer: str, stream: str) -> None:
    program = (
        f"import sys; from memlm_cli.console import {writer} as w; sys.stdin.read(); w('a'); w('b')"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as process:
        reader = process.stdout if stream == "stdout" else process.stderr
        other = process.stderr if stream == "stdout" else process.stdout
        assert process.stdin is not None and reader is not None and other is not None
        reader.close()
        process.stdin.close()
        assert process.wait() == 0
        assert other.read() == b""


def test_lines_go_on_while_nothing_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with ConsoleReporter("build-index", clock) as reporter:
        reporter.progress(0, 12, "parts")
        for _ in range(61):
            clock.now += 1.0
            reporter._tick()
    lines = [FIGURES.findall(line) for line in capsys.readouterr().err.splitlines()]
    assert lines == [["0", "12", "0", "30"], ["0", "12", "0", "60"]]


def test_a_terminal_sees_that_silent_work_goes_on_until_something_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stderr", screen := Screen())
    clock = Clock()
    with ConsoleReporter("inspect", clock) as reporter:
        clock.now += 1.0
        reporter._tick()
        assert screen.getvalue() == ""
        clock.now += 2.0
        reporter._tick()
        assert screen.getvalue() == f"\r{(line := waited('inspect', 3))}"
        say("found")
        assert screen.getvalue().endswith("\r" + " " * len(line) + "\rfound\n")
        said = screen.getvalue()
        clock.now += 1.0
        reporter._tick()
        assert screen.getvalue() == said
    say("after it")
    assert screen.getvalue() == said + "after it\n"


def test_without_a_terminal_silent_work_is_a_line_every_30_seconds_since_the_last_word(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    with ConsoleReporter("export", clock) as reporter:
        for clock.now in map(float, range(1, 70)):
            reporter._tick()
        say("found")
        for clock.now in map(float, range(70, 101)):
            reporter._tick()
    lines = capsys.readouterr().err.splitlines()
    assert lines == [waited("export", 30), waited("export", 60), "found", waited("export", 30)]


def test_in_a_notebook_the_first_line_comes_soon(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with ConsoleReporter("read", clock, soon=True), ConsoleReporter("train", clock) as reporter:
        for clock.now in map(float, range(1, 5)):
            reporter._tick()
        reporter.progress(0, 100, "steps")
        for clock.now in map(float, range(5, 8)):
            reporter._tick()
    soon, later = capsys.readouterr().err.splitlines()
    assert (soon, FIGURES.findall(later)) == (waited("train", 2), ["0", "100", "0"])


def test_of_several_the_innermost_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", screen := Screen())
    clock = Clock()
    with ConsoleReporter("run", clock) as outer:
        clock.now = 3.0
        with ConsoleReporter("tokens", clock) as inner:
            clock.now = 6.0
            outer._tick()
            assert screen.getvalue() == ""
            inner._tick()
            assert screen.getvalue() == f"\r{(line := waited('tokens', 3))}"
        outer._tick()
        cleared = screen.getvalue()
        assert cleared.endswith("\r" + " " * len(line) + "\r")
        clock.now = 9.0
        outer._tick()
        assert screen.getvalue() == f"{cleared}\r{waited('run', 3)}"


def test_words_of_a_library_may_be_sent_elsewhere_and_memlm_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stderr", screen := Screen())
    clock = Clock()
    with ConsoleReporter("import-model", clock) as reporter:
        with redirect_stderr(elsewhere := io.StringIO()):
            clock.now += 3.0
            reporter._tick()
            reporter.info("reading weights")
            reporter.progress(0, 12, "parts")
        assert elsewhere.getvalue() == ""
        said = screen.getvalue()
        assert (
            f"\r{waited('import-model', 3)}" in said
            and "reading weights\n" in said
            and "0/12" in said
        )
    with redirect_stderr(elsewhere):
        say("afterwards")
    assert elsewhere.getvalue() == "afterwards\n"


def test_a_bar_counts_seconds_while_nothing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", screen := Screen())
    with ConsoleReporter("build-index") as reporter:
        reporter.progress(0, 12, "parts")
        drawn = screen.getvalue().count("0/12")
        reporter._tick()
        assert screen.getvalue().count("0/12") == drawn + 1


def test_ticks_come_by_themselves_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, seconds_between_ticks=0.001)
    monkeypatch.setattr("sys.stderr", screen := Screen())
    clock = Clock()
    with ConsoleReporter("inspect", clock):
        clock.now = 3.0
        deadline = time.monotonic() + 10
        while "working" not in screen.getvalue():
            assert time.monotonic() < deadline
    for thread in enumerate_threads():
        if thread.name == "ticks":
            thread.join(10.0)
            assert not thread.is_alive()


@pytest.mark.parametrize(
    ("closed", "printed", "said"), [("<&- >&-", False, True), ("<&- 2>&-", True, False)]
)
def test_standard_streams_that_are_closed_lead_nowhere(
    tmp_path: Path, closed: str, printed: bool, said: bool
) -> None:
    (text := tmp_path / "text.txt").write_text("a b c\n" * 20)
    tokenize = f"tokenize --tokenizer char --train {text} --store {tmp_path / 'store'}"
    program = f"{sys.executable} -m memlm_cli {tokenize} {closed}"
    ended = subprocess.run(program, shell=True, capture_output=True, text=True)
    assert ended.returncode == 0
    assert ended.stdout.startswith("tokens/") is printed
    assert ("reading text" in ended.stderr) is said
    assert len(list((tmp_path / "store" / "tokens").glob("*/manifest.json"))) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_where_an_answer_finds_no_room_it_is_said_which(tmp_path: Path) -> None:
    script = f"{sys.executable} -m memlm_cli artifacts verify --store {tmp_path} --json >/dev/full"
    ended = subprocess.run(script, shell=True, capture_output=True, text=True)
    assert ended.returncode == 5
    assert str(tmp_path) in ended.stderr and "stdout" in ended.stderr
