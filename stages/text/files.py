"""Names of files, which tell what is in them; their digests; the corpus that every CPython ships."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from stages.errors import DataError

PYDOCS = "builtin:pydocs"
"""The documentation topics that every CPython ships: real text without a download."""
COMPRESSED = (".gz", ".xz", ".zst")
PROSE, LINES = (".txt", ".md", ".rst"), ".jsonl"
PARQUET, ARROW = ".parquet", ".arrow"

Format = Literal["txt", "jsonl", "parquet", "arrow", "pydocs"]


def is_usable(path: Path) -> bool:
    """Whether a file's name says that it holds text, and no part of its path that it is hidden."""
    lines = without_compression(path.name).endswith((*PROSE, LINES))
    return not is_hidden(path) and (lines or path.name.endswith((PARQUET, ARROW)))


def is_hidden(path: Path) -> bool:
    """Whether a part of a path begins with a dot."""
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
