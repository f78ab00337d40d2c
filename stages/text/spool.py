"""Text on disk between two passes: cut into shards of a fixed size, with documents and paragraphs marked.

Compressed files cannot be entered in the middle and sources may change; a spool can be read from any shard,
by several readers, after a crash.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stages.array_files import save_arrays
from stages.text.documents import OPENS_DOCUMENT, MarkedPiece, ParagraphHashes
from stages.text.names import NamedRun, NameRuns, read_runs, runs_between

SHARD_CHARACTERS = 2**20
SHARD_PIECES = 2**14
"""A shard ends where it reaches either, so that text of short lines takes no more memory than other text."""
_PIECE = np.dtype([("characters", "<i4"), ("marks", "u1")])
HASHES = "paragraph-hashes.bin"
NAMES = "document-names.jsonl"


@dataclass(frozen=True)
class Pieces:
    """Consecutive pieces of text, joining to exactly the text that was read."""

    texts: Sequence[str]
    marks: np.ndarray
    """uint8 [P], sums of the marks in `documents`."""

    def where(self, mark: int) -> np.ndarray:
        """Indices of the pieces with a mark."""
        return np.flatnonzero(self.marks & mark)


@dataclass(frozen=True)
class SpoolShard:
    """A file of the spool."""

    number: int
    pieces: int
    characters: int
    documents: int
    """Documents that begin here."""


@dataclass(frozen=True)
class TextRange:
    """The pieces [start, stop) of one spool shard."""

    number: int
    start: int
    stop: int


class Spool:
    """A folder with the shards of a spool."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def pieces(self, inside: TextRange) -> Pieces:
        """The pieces of a range."""
        table = self._table(inside.number)
        text = self._text_file(inside.number).read_bytes().decode()
        ends = np.cumsum(table["characters"], dtype=np.int64).tolist()
        texts = [text[a:b] for a, b in zip([0, *ends], ends, strict=False)]
        return Pieces(texts[inside.start : inside.stop], table["marks"][inside.start : inside.stop])

    def layout(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """(characters int64 [P], marks uint8 [P]) of a shard's pieces, without their text."""
        table = self._table(number)
        return table["characters"].astype(np.int64), table["marks"]

    def hashes(self, start: int, stop: int) -> np.ndarray:
        """Hashes of the paragraphs [start, stop) of the spool, uint64."""
        file = self.folder / HASHES
        return np.fromfile(file, "<u8", stop - start, offset=start * 8).astype(np.uint64)

    def names(self, start: int, stop: int) -> Iterator[NamedRun]:
        """Names of the documents [start, stop) of the spool."""
        return runs_between(read_runs(self.folder / NAMES), start, stop)

    def _table(self, number: int) -> np.ndarray:
        table: np.ndarray = np.load(self.folder / _table_name(number), allow_pickle=False)
        return table

    def _text_file(self, number: int) -> Path:
        return self.folder / _text_name(number)


MayEnd = Callable[[MarkedPiece, MarkedPiece], bool]
"""(piece, the one after it) -> whether a shard may end between them."""


def write_spool(
    pieces: Iterable[MarkedPiece], first: int, add: Callable[[str], Path], may_end: MayEnd = lambda *_: True
) -> Iterator[SpoolShard]:
    """Write text to a spool, shard by shard.

    Args:
        pieces: the text; its first piece opens a document.
        first: number of the first shard, counting the shards already in the spool.
        add: gives the path of a file of the spool, made anew if `first` is 0.
        may_end: asked once a shard is large enough; it grows until the answer is yes.
    """
    hashes, names = ParagraphHashes(), NameRuns()
    mode = "ab" if first else "wb"
    with add(HASHES).open(mode) as hash_file, add(NAMES).open(mode) as name_file:
        for number, batch in enumerate(_batches(pieces, may_end), start=first):
            finished = [value for piece in batch if (value := hashes.add(piece)) is not None]
            hash_file.write(np.array(finished, "<u8").tobytes())
            name_file.writelines(run.dumps().encode() for piece in batch if (run := names.add(piece)))
            yield _write_shard(number, batch, add)
        if (last := hashes.finish()) is not None:
            hash_file.write(np.array([last], "<u8").tobytes())
        if run := names.finish():
            name_file.write(run.dumps().encode())


def _batches(pieces: Iterable[MarkedPiece], may_end: MayEnd) -> Iterator[list[MarkedPiece]]:
    batch: list[MarkedPiece] = []
    characters = 0
    for piece in pieces:
        large = characters >= SHARD_CHARACTERS or len(batch) >= SHARD_PIECES
        if large and may_end(batch[-1], piece):
            yield batch
            batch, characters = [], 0
        batch.append(piece)
        characters += len(piece.text)
    if batch:
        yield batch


def _write_shard(number: int, batch: list[MarkedPiece], add: Callable[[str], Path]) -> SpoolShard:
    texts = [piece.text for piece in batch]
    table = np.empty(len(batch), _PIECE)
    table["characters"] = list(map(len, texts))
    table["marks"] = [piece.marks for piece in batch]
    add(_text_name(number)).write_bytes("".join(texts).encode())
    save_arrays(add(_table_name(number)), table)
    return SpoolShard(
        number=number,
        pieces=len(batch),
        characters=int(table["characters"].sum()),
        documents=int(np.count_nonzero(table["marks"] & OPENS_DOCUMENT)),
    )


def _text_name(number: int) -> str:
    return f"{number:06d}.txt"


def _table_name(number: int) -> str:
    return f"{number:06d}.npy"
