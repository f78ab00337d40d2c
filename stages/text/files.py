"""Which files a user means, and what is in them by their names."""

import codecs
import hashlib
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

from stages.errors import DataError

PYDOCS = "builtin:pydocs"
"""The documentation topics that every CPython ships: real text without a download."""
COMPRESSED = (".gz", ".xz", ".zst")
PROSE, LINES = (".txt", ".md", ".rst"), ".jsonl"
PARQUET, ARROW = ".parquet", ".arrow"
CHECKED = 2**26
"""Bytes of a file in a folder up to which it is read to the end before it counts as text."""
NAMED = 5
"""Maximum number of such files that a message names."""
SNIFFED = 4096
"""Bytes at the beginning of a file that tell whether it is text."""

Format = Literal["txt", "jsonl", "parquet", "arrow", "pydocs"]


LeftOut = Callable[[str], None]
"""Hears, in a sentence, of files of a folder that are not read."""


def find_files(specs: Iterable[str], store: Path | None = None, left_out: LeftOut = lambda sentence: None) -> list[str]:
    """Expand what a user names into files; directories are searched through, in order of path.

    Args:
        store: a folder of artifacts; where it lies in a directory, or is it, its files are no text of the user's.
        left_out: hears of files of a directory that are empty or no UTF-8; of a file that is named, its reader does.
    Raises: DataError for what is missing, is no regular file, or is a directory without usable files.
    """
    return [path for spec in specs for path in _expand(spec, store, left_out)]


def _expand(spec: str, store: Path | None, left_out: LeftOut) -> list[str]:
    if not spec:
        raise DataError(f"An empty name is given for a file; expected a text file, a directory or {PYDOCS}.")
    path = Path(spec)
    try:
        if spec == PYDOCS or path.is_file():
            return [spec]
        if path.is_dir():
            return _readable(path, _usable_below(path, store), left_out)
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


def _readable(folder: Path, files: list[str], left_out: LeftOut) -> list[str]:
    """The files of a folder that hold text. Raises: DataError where none does."""
    wrong = {file: problem for file in files if (problem := _problem(file)) is not None}
    named = ", ".join(f"{Path(file).relative_to(folder)} ({problem})" for file, problem in list(wrong.items())[:NAMED])
    named += f" and {len(wrong) - NAMED:,} more" * (len(wrong) > NAMED)
    if len(wrong) == len(files):
        raise DataError(f"{folder} holds no file of text in UTF-8: {named}.")
    if wrong:
        left_out(f"{len(wrong):,} of {len(files):,} files of {folder} are not read: {named}")
    return [file for file in files if file not in wrong]


def _problem(file: str) -> str | None:
    """The reason why a file of text cannot be read; None: there is none, or only its reader can tell."""
    path = Path(file)
    try:
        if (held := path.stat().st_size) == 0:
            return "empty"
        checked = format_of(file) == "txt" and not compression(file) and held <= CHECKED
        if checked and "\0" in path.read_bytes().decode():
            return "binary"
    except UnicodeDecodeError as error:
        return f"byte {error.start} is no UTF-8"
    except OSError as error:
        return str(error.strerror)
    return None


def _others(folder: Path, inside: list[Path]) -> str:
    """Name the most frequent ending of other text files of a folder; empty without any."""
    endings = Counter(path.suffix for path in inside if path.suffix and not _hidden(path))
    for ending, count in endings.most_common():
        first = min(path for path in inside if path.suffix == ending and not _hidden(path))
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


def is_usable(path: Path) -> bool:
    """Whether a file's name says that it holds text, and no part of its path that it is hidden."""
    lines = without_compression(path.name).endswith((*PROSE, LINES))
    return not _hidden(path) and (lines or path.name.endswith((PARQUET, ARROW)))


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def without_compression(name: str) -> str:
    """A file's name less `.gz`, `.xz` or `.zst`."""
    return name[: -len(compression(name))] if compression(name) else name


def compression(name: str) -> str:
    """`.gz`, `.xz` or `.zst` if that is how the name ends, else an empty text."""
    return next((suffix for suffix in COMPRESSED if name.endswith(suffix)), "")


def format_of(path: str) -> Format:
    """Format of a file, by its name."""
    if path == PYDOCS:
        return "pydocs"
    tables: dict[str, Format] = {PARQUET: "parquet", ARROW: "arrow"}
    table = tables.get(Path(path).suffix)
    return table or ("jsonl" if without_compression(path).endswith(LINES) else "txt")


def file_digest(path: str) -> str:
    """BLAKE2b of a file's bytes, or of the text of the built-in corpus."""
    if path == PYDOCS:
        return text_digest(pydoc_topics())
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error


def pydoc_topics() -> Iterator[str]:
    """The text of each documentation topic, in alphabetical order of the topics' names."""
    from pydoc_data.topics import topics

    return (topics[name] for name in pydoc_names())


def pydoc_names() -> list[str]:
    """The names of the documentation topics, in alphabetical order."""
    from pydoc_data.topics import topics

    return sorted(topics)


def text_digest(texts: Iterable[str]) -> str:
    """BLAKE2b of a list of texts, boundaries included."""
    digest = hashlib.blake2b()
    for text in texts:
        data = text.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()
