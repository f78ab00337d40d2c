"""The command line in this process: arguments and standard input in; exit code, stdout and stderr
out.
"""

import io
import re
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple, TextIO

import pytest

from memlm_cli.app import main

PROGRESS = re.compile(r"[^:]+: (working, \d+ s|[\d,]+ of [\d,]+ \w+ \(\d+%\).*)")
"""A line that a command says while it works for long: a busy machine adds it to any of them."""


class Ended(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def reference(self) -> str:
        """The one line on stdout of a stage."""
        assert self.code == 0, self.err
        (line,) = self.out.splitlines()
        return line

    @property
    def told(self) -> list[str]:
        """Lines on stderr without those of progress."""
        return told(self.err)


def told(err: str) -> list[str]:
    """Lines of a command's stderr without those of progress."""
    return [line for line in err.splitlines() if not PROGRESS.fullmatch(line)]


class Screen(io.StringIO):
    """A stream that a person watches, or types on."""

    def isatty(self) -> bool:
        return True


Memlm = Callable[..., Ended]


def made(*words: object) -> str:
    """The line on stdout of a stage, which several tests read."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()) as err:
        assert main([str(word) for word in words]) == 0, err.getvalue()
    return out.getvalue().strip()


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where tracebacks of bugs go."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def memlm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Memlm:
    """Runs `memlm ARGUMENTS` with a store of its own and the given text on standard input."""
    monkeypatch.setenv("MEMLM_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")

    def run(*arguments: object, stdin: str | TextIO = "") -> Ended:
        stream = io.StringIO(stdin) if isinstance(stdin, str) else stdin
        monkeypatch.setattr("sys.stdin", stream)
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        return Ended(code, *capfd.readouterr())

    return run


@contextmanager
def largest_file(most: int) -> Iterator[None]:
    """Let the system refuse whatever is written behind so many bytes of a file, as a full disk
    does.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A file of a few hundred words in which words repeat."""
    path = tmp_path / "text.txt"
    lines = [
        f"the {a} sees the {b} and the {a} runs"
        for a in ["cat", "dog", "fox"]
        for b in ["hen", "cow", "pig"]
    ]
    path.write_text("\n".join(lines * 4) + "\n", encoding="utf-8")
    return path
