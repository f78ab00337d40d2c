"""Text on standard input, kept as a file of the store: a corpus is read twice, and again to resume."""

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from memlm_cli.progress import not_working
from stages.artifacts.durable import make_folder, replacing
from stages.errors import DataError, UsageError

STANDARD_INPUT = "-"
"""Name of a file that stands for the text on standard input."""
FOLDER = "piped"
"""Folder of a store for such texts."""
BLOCK = 2**20
"""Bytes that are read at a time."""


def with_piped_text(files: Sequence[str], store: Path) -> list[str]:
    """The files, with `-` replaced by a file that holds the text on standard input.

    Raises: UsageError if it would be read twice, or from a terminal; DataError if it is empty.
    """
    if files.count(STANDARD_INPUT) > 1:
        raise UsageError("- is the text on standard input, which can be read once: name it once.")
    return [_piped_file(store) if file == STANDARD_INPUT else file for file in files]


@contextmanager
def kept_unless_refused(references: Mapping[str, Any], store: Path) -> Iterator[dict[str, Any]]:
    """Context with the references of `place_piped_text`.

    A text that is refused in it, by a UsageError or a DataError, is removed from the store: nobody
    can go on from it.
    """
    folder = store / FOLDER
    before = set(folder.glob("*"))
    placed = place_piped_text(references, store)
    try:
        yield placed
    except (DataError, UsageError):
        for text in set(_texts_in(placed, folder)) - before:
            text.unlink(missing_ok=True)
        raise


def _texts_in(references: Mapping[str, Any], folder: Path) -> Iterator[Path]:
    for files in references.values():
        if isinstance(files, list):
            yield from (Path(file) for file in files if Path(file).parent == folder)


def place_piped_text(references: Mapping[str, Any], store: Path) -> dict[str, Any]:
    """The files of several roles, as by `with_piped_text`; other references stay as they are."""
    lists = {role: files for role, files in references.items() if isinstance(files, list)}
    every_file = list(chain.from_iterable(lists.values()))
    if STANDARD_INPUT not in every_file:
        return dict(references)

    # standard input may be named in one role alone, so all roles are looked at together
    replaced = iter(with_piped_text(every_file, store))
    result = dict(references)
    for role, files in lists.items():
        result[role] = list(islice(replaced, len(files)))
    return result


def _piped_file(store: Path) -> str:
    """Read standard input to its end; the path of a file with its bytes, which its name digests."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(
            "- is the text on standard input: pipe it into this command, or name a file."
        )
    folder = store / FOLDER
    make_folder(folder)
    digest = hashlib.blake2b(digest_size=6)
    # It has no name, so nothing is left of it if the command is killed.
    with TemporaryFile(dir=folder) as copy, not_working():
        for block in _blocks(sys.stdin.buffer):
            digest.update(block)
            copy.write(block)
        if not copy.tell():
            raise DataError("There is no text on standard input: did the command before it fail?")
        file = folder / f"{digest.hexdigest()}.txt"
        copy.seek(0)
        with replacing(file) as output:
            for block in _blocks(copy):
                output.write(block)
    return str(file)


def _blocks(stream: Any) -> Iterator[bytes]:
    return iter(lambda: stream.read(BLOCK), b"")
