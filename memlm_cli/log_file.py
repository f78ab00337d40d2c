"""`--log-file`: what goes to stderr, in a file as well, each line with its time; no control codes, and no bars."""

import os
import shlex
import sys
import time
import warnings
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from memlm_cli.console import log_to, say
from memlm_cli.output_files import check_output_file
from stages.errors import UsageError
from stages.numbers import duration

OPTION = "--log-file"


class LogFile:
    """An open log; what is written is appended in one piece, so that several processes may share the file."""

    def __init__(self, path: Path) -> None:
        """Raises: UsageError if the file cannot be written."""
        check_output_file(OPTION, path)
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise UsageError(f"{OPTION} {path} cannot be written ({error.strerror}).") from None
        self.path = path
        self.began = time.monotonic()
        self._failed = False

    def write(self, text: str) -> None:
        """Lines, each after the time; a log that cannot be written any more stops no work."""
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        lines = "".join(f"{now} {line}\n" for line in text.splitlines() if line.strip())
        if self._failed or not lines:
            return
        try:
            # One call for all of it: appended so, lines of several processes do not mix.
            os.write(self._file, lines.encode("utf-8", "backslashreplace"))
        except OSError as error:
            # Before it is said: what is said goes into this log, too.
            self._failed = True
            say(f"warning: the log {self.path} cannot be written any more ({error.strerror})")

    def close(self) -> None:
        os.close(self._file)


_open: LogFile | None = None
_show_warning = warnings.showwarning


def open_log(path: Path, arguments: Sequence[str]) -> None:
    """Keep a log of the command with these arguments from now on. Raises: UsageError if the file cannot be written."""
    global _open
    from memlm_cli.packages import installed  # which takes time, for a log alone

    opened = LogFile(path)
    if _open is not None:
        _open.close()
    _open = opened
    log_to(_open.write)
    warnings.showwarning = _warned
    _open.write(f"$ {shlex.join(['memlm', *arguments])}")
    _open.write(f"memlm {installed('memlm')}, process {os.getpid()}, in {Path.cwd()}")


def log_path() -> Path | None:
    """Where the log of this command is; None: it has none."""
    return None if _open is None else _open.path


def close_log(code: int) -> None:
    """Note how the command ended, and write no more."""
    global _open
    if _open is not None:
        log_to(None)
        warnings.showwarning = _show_warning
        _open.write(f"exit code {code} after {duration(time.monotonic() - _open.began)}")
        _open.close()
        _open = None


def _warned(message, category, filename, lineno, file=None, line=None) -> None:  # type: ignore[no-untyped-def]
    """A warning of Python, on stderr as ever, and in the log."""
    _show_warning(message, category, filename, lineno, file, line)
    if _open is not None and file in (None, sys.stderr):
        _open.write(warnings.formatwarning(message, category, filename, lineno, line))
