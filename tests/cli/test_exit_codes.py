"""Every exception has its exit code, and a sentence that says what to do."""

import errno
import warnings
from pathlib import Path

import pytest
import typer

from memlm_cli.exit_codes import failure_of, guarded, resumable
from stages.errors import ArtifactError, BusyError, DataError, ResourceError, UsageError
from stages.interrupts import Terminated


class OutOfMemoryError(RuntimeError):
    """What torch raises, by name."""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (typer.BadParameter("x"), 2),
        (DataError("x"), 3),
        (ArtifactError("x"), 4),
        (ResourceError("x"), 5),
        (BusyError("x"), 75),
        (KeyboardInterrupt(), 130),
        (Terminated(), 143),
        (MemoryError(), 5),
        (OutOfMemoryError("CUDA out of memory"), 5),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 5),
        (OSError(errno.ENOSPC, "No space left on device"), 5),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), 5),
        (OSError(errno.EFBIG, "File too large"), 5),
        (OSError("Not enough free space to write 4096 bytes"), 5),
        (OSError("27727872 requested and 870976 written"), 5),
        (OSError(errno.EIO, "Input/output error", "/store/x"), 5),
        (OSError(errno.EIO, "Input/output error"), 5),
        (Exception("No space left on device (os error 28)"), 5),
        (
            RuntimeError(
                'IoError(Os { code: 28, kind: StorageFull, message: "No space left on device" })'
            ),
            5,
        ),
        (Exception("Permission denied (os error 13)"), 1),
        (OSError(errno.EROFS, "Read-only file system"), 2),
        (
            FileNotFoundError(
                errno.ENOENT, "No such file", "store/tokens/0123456789ab/tokens.zarr/zarr.json"
            ),
            4,
        ),
        (
            FileNotFoundError(errno.ENOENT, "No such file", "store/tokens/x/tokens.zarr/zarr.json"),
            1,
        ),
        (OSError(errno.EROFS, "Read-only file system", "/store/x"), 2),
        (OSError(errno.ENAMETOOLONG, "File name too long", "x" * 5000), 2),
        (OSError(errno.ELOOP, "Too many levels of symbolic links", "/store/x"), 2),
        (OSError(errno.EACCES, "Permission denied", "/store/x"), 2),
        (OSError(errno.EACCES, "Permission denied"), 1),
        (EOFError(), 1),
        (ZeroDivisionError(), 1),
    ],
)
def test_exit_codes_are_those_of_the_contract(error: BaseException, code: int) -> None:
    assert failure_of(error).code == code


def test_a_stopped_command_says_what_is_kept() -> None:
    with pytest.raises(KeyboardInterrupt) as stopped, resumable("half"):
        raise KeyboardInterrupt
    assert failure_of(stopped.value).message == "interrupted; half."
    answering, working = failure_of(KeyboardInterrupt()).message, failure_of(Terminated()).message
    assert answering.partition(";")[2] == working.partition(";")[2] != ""


def test_a_full_disk_is_found_behind_another_error() -> None:
    try:
        try:
            raise OSError(errno.ENOSPC, "No space left on device", "/store/x")
        except OSError as error:
            raise RuntimeError("could not write chunk") from error
    except RuntimeError as error:
        failure = failure_of(error)
    assert failure.code == 5
    assert "/store/x" in failure.message


@pytest.mark.parametrize(
    ("parts", "whose"),
    [("", "a bug; the"), ("my_layers", "a bug of my_layers (MEMLM_PARTS) or of")],
)
def test_a_bug_may_be_one_of_parts_from_outside(
    capsys: pytest.CaptureFixture[str],
    logs: Path,
    monkeypatch: pytest.MonkeyPatch,
    parts: str,
    whose: str,
) -> None:
    monkeypatch.setenv("MEMLM_PARTS", parts)
    assert guarded(lambda: 1 // 0, "memlm train") == 1
    assert f"This is {whose}" in " ".join(capsys.readouterr().err.split())


def test_a_bug_leaves_its_traceback_in_a_file_named_on_stderr(
    capsys: pytest.CaptureFixture[str], logs: Path
) -> None:
    def bug() -> None:
        raise ZeroDivisionError("none")

    assert guarded(bug, "memlm train") == 1
    err = capsys.readouterr().err
    assert "Traceback" not in err
    log = Path(err.split()[-1])
    assert "ZeroDivisionError: none" in log.read_text()
    assert "in bug" in log.read_text()
    assert log.parent == logs


def test_an_expected_failure_is_one_line_without_a_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> None:
        raise DataError("a.txt is empty.")

    assert guarded(fail, "memlm tokenize") == 3
    assert capsys.readouterr().err.startswith("memlm tokenize: ")


def test_success_is_silent_and_exit_keeps_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    def leave() -> None:
        raise typer.Exit(7)

    assert guarded(lambda: None, "memlm") == 0
    assert guarded(leave, "memlm") == 7
    assert capsys.readouterr() == ("", "")


def test_a_huge_quoted_value_is_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    def quoting() -> None:
        raise DataError(f"answer {'x' * 100_000} is no number (line 3).")

    assert guarded(quoting, "memlm") == DataError.exit_code
    message = capsys.readouterr().err
    assert message.startswith("memlm: answer xxx")
    assert message.endswith("is no number (line 3).\n")
    assert len(message) < 3000


def test_tasks_that_a_signal_cut_short_are_not_reported() -> None:
    async def task() -> None:
        """A task of a library, which had not begun."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        never_awaited = task()
        assert guarded(interrupted, "memlm") == 130
        del never_awaited
    assert shown == []
