"""Which files a user means: those that are named, and those of a folder that can be read."""

import codecs
import shlex
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from stages.errors import DataError
from stages.text.config import TEXT
from stages.text.files import (
    ARROW,
    COMPRESSED,
    LINES,
    PARQUET,
    PROSE,
    PYDOCS,
    format_of,
    is_hidden,
    is_usable,
    without_compression,
)
from stages.text.records import TextFile, records

CHECKED = 2**26
"""Bytes of a file in a folder up to which it is read to the end before it counts as text."""
NAMED = 5
"""Maximum number of such files that a message names."""
SNIFFED = 4096
"""Bytes at the beginning of a file that tell whether it is text."""

LeftOut = Callable[[str], None]
"""Hears, in a sentence, of files of a folder that are not read."""


def find_files(
    specs: Iterable[str],
    store: Path | None = None,
    left_out: LeftOut = lambda sentence: None,
    column: str = TEXT,
) -> list[str]:
    """Expand what a user names into files; directories are searched through, in order of path.

    Args:
        store: a folder of artifacts; where it lies in a directory, or is it, its files are no text of the user's.
        left_out: hears of files of a directory that cannot be read; of a file that is named, its reader tells.
        column: of a table, or field of a record, that holds the text.
    Raises: DataError for what is missing, is no regular file, or is a directory without usable files.
    """
    return [path for spec in specs for path in _expand(spec, store, left_out, column)]


def _expand(spec: str, store: Path | None, left_out: LeftOut, column: str) -> list[str]:
    if not spec:
        raise DataError(f"An empty name is given for a file; expected a text file, a directory or {PYDOCS}.")
    path = Path(spec)
    try:
        if spec == PYDOCS or path.is_file():
            return [spec]
        if path.is_dir():
            return _readable(path, _usable_below(path, store), left_out, column)
        exists = path.exists()
    except OSError as error:
        raise DataError(f"{spec} cannot be read: {error.strerror}.") from error
    if exists:
        raise DataError(f"{spec} is no regular file; files are read twice, so give a file on disk.")
    raise DataError(f"{spec} does not exist; expected a text file, a directory or {PYDOCS}.")


def _usable_below(folder: Path, store: Path | None) -> list[str]:
    made = None if store is None else store.resolve()
    named = [p for p in folder.rglob("*") if p.is_file() and (made is None or made not in p.resolve().parents)]
    inside = [p.relative_to(folder) for p in named]
    usable = [p for p in inside if is_usable(p)]
    if any(format_of(str(p)) != "txt" for p in usable):  # beside records, .md is what describes them
        usable = [p for p in usable if format_of(str(p)) != "txt" or without_compression(p.name).endswith(PROSE[0])]
    if not usable:
        wanted = f"{', '.join((*PROSE, LINES))} (also compressed: {', '.join(COMPRESSED)}), {PARQUET} or {ARROW}"
        raise DataError(f"{folder} holds no {wanted} file{_others(folder, inside)}.")
    return [str(folder / path) for path in sorted(usable, key=lambda path: path.parts)]


def _readable(folder: Path, files: list[str], left_out: LeftOut, column: str) -> list[str]:
    """The files of a folder that hold text. Raises: DataError where none does."""
    wrong = {file: problem for file in files if (problem := _problem(file, column)) is not None}
    named = ", ".join(f"{Path(file).relative_to(folder)} ({problem})" for file, problem in list(wrong.items())[:NAMED])
    named += f" and {len(wrong) - NAMED:,} more" * (len(wrong) > NAMED)
    if len(wrong) == len(files):
        raise DataError(f"{folder} holds no file that can be read: {named}.")
    if wrong:
        left_out(f"{len(wrong):,} of {len(files):,} files of {folder} are not read: {named}")
    return [file for file in files if file not in wrong]


def _problem(file: str, column: str) -> str | None:
    """The reason why a file cannot be read; None: there is none, or the file is so large that its reader tells."""
    try:
        if (held := Path(file).stat().st_size) == 0:
            return "empty"
        if held <= CHECKED:
            read = records(TextFile.of(file, column))
            return None if sum(len(block) for record in read for block in record.blocks) else "empty"
    except OSError as error:
        return str(error.strerror)
    except DataError as error:
        return str(error).removeprefix(file).lstrip(",: ").partition(";")[0].rstrip(".")
    return None


def _others(folder: Path, inside: list[Path]) -> str:
    """Name the most frequent ending of other text files of a folder; empty without any."""
    endings = Counter(path.suffix for path in inside if path.suffix and not is_hidden(path))
    for ending, count in endings.most_common():
        first = min(path for path in inside if path.suffix == ending and not is_hidden(path))
        if _begins_as_text(folder / first):
            place = shlex.quote(str(folder))
            pattern = f"{place}/*{ending}" if first.parent == Path() else f"$(find {place} -name '*{ending}')"
            return f"; it has {count:,} {ending} file{'s'[: count != 1]}: name them ({pattern})"
    return ""


def _begins_as_text(path: Path) -> bool:
    """Whether the beginning of a file is UTF-8 without a NUL."""
    try:
        with path.open("rb") as file:
            beginning = file.read(SNIFFED)
    except OSError:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(beginning)
    except UnicodeDecodeError:
        return False
    return bool(beginning) and b"\0" not in beginning
