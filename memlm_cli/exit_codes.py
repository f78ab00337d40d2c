"""Exit codes: only this module turns exceptions into an exit code and one or two sentences on
stderr.
"""

import errno
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import typer

from memlm_cli.console import say, write_nowhere
from stages.artifacts.durable import disk_failure
from stages.artifacts.kinds import KINDS
from stages.artifacts.references import is_id
from stages.errors import ArtifactError, MemlmError, causes, first_line, shortened, without_middle
from stages.interrupts import Interruption, Terminated
from stages.registry import OUTSIDE

BUG = 1
USAGE = 2
RESOURCES = 5
INTERRUPTED = 130
TERMINATED = 143
_DENIED = (errno.EACCES, errno.EPERM)
_NO_PATH = (errno.ENAMETOOLONG, errno.ELOOP)
# Typer does not export it.
CommandLineError: type[Exception] = typer.BadParameter.__mro__[1]
"""Typer's exception for an error in the command line."""


class Failure(NamedTuple):
    """Exit code and message of a command that failed; the message is empty if help was shown."""

    code: int
    message: str


def guarded(work: Callable[[], object], name: str, interruption: Interruption | None = None) -> int:
    """Run `work` and return the exit code; a failure prints `name: message` on stderr.

    Args:
        interruption: remembers a signal that came while `work` ran.
    """
    try:
        work()
    except typer.Exit as end:
        return end.exit_code
    # This catches signals and bugs, too: no command prints a traceback on the terminal.
    except BaseException as error:
        if _reader_has_gone(error):
            return 0
        if isinstance(error, SystemExit):  # Typer ends shell completion this way.
            return error.code if isinstance(error.code, int) else 0
        if interruption is not None:
            error = interruption.cause_of(error)
        if isinstance(error, KeyboardInterrupt | Terminated):
            # Tasks of zarr that the signal cut short would be reported at exit: with tracebacks
            # where they had begun, as never awaited where they had not.
            logging.getLogger("asyncio").disabled = True
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        failure = failure_of(error)
        if failure.message:
            # A message may quote what was typed or read, which may be a whole file.
            say(f"{name}: {without_middle(failure.message)}")
        return failure.code
    return 0


def failure_of(error: BaseException) -> Failure:
    """Exit code and message of an exception."""
    if isinstance(error, MemlmError):
        return Failure(error.exit_code, str(error))
    if isinstance(error, CommandLineError):
        return Failure(USAGE, usage_message(error))
    if isinstance(error, KeyboardInterrupt):
        return Failure(INTERRUPTED, _stopped("interrupted", error))
    if isinstance(error, Terminated):
        return Failure(TERMINATED, _stopped("terminated", error))
    rules = (_shortage, _refusal, _removal, _missing_package)
    failures = (
        failure for rule in rules for link in causes(error) if (failure := rule(link)) is not None
    )
    return next(failures, None) or Failure(BUG, _bug_message(error))


@contextmanager
def resumable(
    remark: str = "what is done is kept, and the same command goes on from there",
) -> Iterator[None]:
    """Context for work on an artifact: if it is interrupted, the message says what is kept."""
    try:
        yield
    except (KeyboardInterrupt, Terminated) as error:
        error.add_note(remark)
        raise


def _stopped(how: str, error: BaseException) -> str:
    """Message about an interruption. Work on artifacts adds a note of what is kept; other commands
    start again.
    """
    notes = getattr(
        error, "__notes__", ("finished results are kept, and the same command does the rest again",)
    )
    return "; ".join((how, *notes)) + "."


def _reader_has_gone(error: BaseException) -> bool:
    """Whether the reader of stdout has closed it (`memlm --help | head`). Rich then raises
    `SystemExit` in help.
    """
    gone = error.__context__ if isinstance(error, SystemExit) else error
    if isinstance(gone, BrokenPipeError):
        write_nowhere(sys.stdout)
    return isinstance(gone, BrokenPipeError)


def usage_message(error: BaseException) -> str:
    """Message about wrong usage, with the command that shows help."""
    context = getattr(error, "ctx", None)
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    if context is not None and hasattr(error, "option_name") and hasattr(error, "possibilities"):
        message = f"No such option: {error.option_name}{_suggestion(error.option_name, context)}"
    hint = f" (see {context.command_path} --help)" if context and message else ""
    return message.replace("Value error, ", "") + hint


BEGINNING = 5
"""Number of first letters that a suggested option shares with the typed one: `--vocabulary`,
`--vocab-size`.
"""


def _suggestion(option: str, context: Any) -> str:
    """Suggestion for an unknown option: an option that help shows, or a setting of a memory."""
    if option == "--dry-run":
        return f"; memlm plan {context.info_name} … says what would be made, and how much disk and memory it needs"
    spelled = {}
    for parameter in context.command.params:
        if parameter.param_type_name == "option" and not parameter.hidden:
            for flag in (*parameter.opts, *parameter.secondary_opts):
                if flag.startswith("--"):
                    spelled[flag.lstrip("-")] = flag
    if "memory" in spelled:
        from stages.retrieval.hyperparameters import settable

        spelled = {name: f"--memory SOURCES:{name}=X" for name in settable()} | spelled

    name = option.lstrip("-")
    near = get_close_matches(name, spelled, n=1)
    if not near:
        near = [other for other in spelled if other[:BEGINNING] == name[:BEGINNING]]
    return f"; did you mean {spelled[near[0]]}?" if near else ""


def _shortage(error: BaseException) -> Failure | None:
    """Failure because the disk is full or memory ran out."""
    failure = disk_failure(error, Path(str(getattr(error, "filename", None) or ".")))
    if failure is None and _is_out_of_memory(error):
        failure = (
            f"Out of memory ({first_line(error)}); what is done is kept. Free memory or choose smaller batches, "
            "then run the same command."
        )
    return None if failure is None else Failure(RESOURCES, failure)


def _refusal(error: BaseException) -> Failure | None:
    """Failure to write a file, for lack of permission or because the path is impossible."""
    if not isinstance(error, OSError):
        return None
    if error.errno in _NO_PATH:
        return Failure(
            USAGE,
            f"{shortened(str(error.filename or ''))} cannot be a path here: {error.strerror}.",
        )
    if error.errno == errno.EROFS or (error.errno in _DENIED and error.filename):
        refused = f"{error.filename or 'The store'} cannot be written ({error.strerror})"
        return Failure(
            USAGE, f"{refused}; name a writable store with --store, or change its permissions."
        )
    return None


def _removal(error: BaseException) -> Failure | None:
    """Failure to read a file of an artifact that was damaged or removed."""
    file = Path(str(getattr(error, "filename", None) or "."))
    for folder in file.parents if isinstance(error, FileNotFoundError) else ():
        if folder.parent.name in KINDS and is_id(folder.name):
            reference = f"{folder.parent.name}/{folder.name}"
            return Failure(
                ArtifactError.exit_code,
                f"{reference} is damaged, or was removed: {file} is missing.",
            )
    return None


def _missing_package(error: BaseException) -> Failure | None:
    from memlm_cli.packages import PACKAGES, installation

    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if not package or package in PACKAGES:
        return None
    return Failure(
        USAGE, f"This needs the package {package}, which is not installed: {installation(package)}"
    )


def _is_out_of_memory(error: BaseException) -> bool:
    # Compared by name, because torch defines the error, and may not be installed or imported.
    named = any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)
    refused = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    return named or refused or isinstance(error, MemoryError)


def _bug_message(error: BaseException) -> str:
    """Message about a bug, whose traceback is written into a file."""
    import tempfile

    descriptor, path = tempfile.mkstemp(prefix="memlm-", suffix=".log", text=True)
    with os.fdopen(descriptor, "w", encoding="utf-8") as log:
        log.write(f"command: {sys.argv}\nfolder: {os.getcwd()}\npython: {sys.version}\n\n")
        log.write("".join(traceback.format_exception(error)))
    outside = os.environ.get(OUTSIDE)
    whose = f"a bug of {outside} ({OUTSIDE}) or of memlm" if outside else "a bug"
    message = f"{type(error).__name__}: {first_line(error)}"
    return f"internal error: {message}. This is {whose}; the traceback is in {path}"
