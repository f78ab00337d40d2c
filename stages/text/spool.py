"""Text on disk between two passes, cut into shards of bounded size, with documents and paragraphs
marked.

Compressed files cannot be read from the middle, and sources may change. A spool can be read from
any shard, by several readers, and after a crash.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np

from stages.array_files import save_arrays
from stages.errors import DataError
from stages.text.config import Documents
from stages.text.documents import (
    OPENS_DOCUMENT,
    MarkedPiece,
    NamedRun,
    NameRuns,
    ParagraphHashes,
    read_runs,
    runs_between,
)

SHARD_CHARACTERS = 2**20
SHARD_PIECES = 2**14
"""A shard ends at the first of the two limits, so that short lines take no more memory than long
ones.
"""
_PIECE = np.dtype([("characters", "<i4"), ("marks", "u1")])
HASHES = "paragraph-hashes.bin"
NAMES = "document-names.jsonl"


@dataclass(frozen=True)
class Pieces:
    """Consecutive pieces of text. Joined, they give exactly the text that was read."""

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
        text = (self.folder / f"{inside.number:06d}.txt").read_bytes().decode()
        ends = np.cumsum(table["characters"], dtype=np.int64).tolist()
        texts = [text[a:b] for a, b in zip([0, *ends], ends, strict=False)]
        return Pieces(texts[inside.start : inside.stop], table["marks"][inside.start : inside.stop])

    def marks(self, inside: TextRange) -> np.ndarray:
        """Marks of the pieces of a range, uint8 [P]; their text is not read."""
        return np.asarray(self._table(inside.number)["marks"][inside.start : inside.stop])

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
        table: np.ndarray = np.load(self.folder / f"{number:06d}.npy", allow_pickle=False)
        return table


MayEnd = Callable[[MarkedPiece, MarkedPiece], bool]
"""(piece, next piece) -> whether a shard may end between them."""


def write_spool(
    pieces: Iterable[MarkedPiece],
    first: int,
    add: Callable[[str], Path],
    may_end: MayEnd = lambda *_: True,
) -> Iterator[SpoolShard]:
    """Write text to a spool, shard by shard.

    Args:
        pieces: the text; its first piece opens a document.
        first: number of the first shard, counting the shards already in the spool.
        add: gives the path of a file of the spool; the file is created anew if `first` is 0.
        may_end: called once a shard is large enough; the shard grows until the answer is yes.
    """
    hashes = ParagraphHashes()
    names = NameRuns()
    # The first split starts both files anew: an interrupted attempt may have left old ones.
    mode = "ab" if first else "wb"
    with add(HASHES).open(mode) as hash_file, add(NAMES).open(mode) as name_file:
        for number, batch in enumerate(batches(pieces, may_end), start=first):
            hash_file.write(np.fromiter(hashes.ended(batch), "<u8").tobytes())
            named = (
                piece for piece in batch if piece.name is not None or piece.marks & OPENS_DOCUMENT
            )
            name_file.writelines(
                run.dumps().encode() for piece in named if (run := names.add(piece))
            )
            yield _write_shard(number, batch, add)
        if (last := hashes.finish()) is not None:
            hash_file.write(np.array([last], "<u8").tobytes())
        if run := names.finish():
            name_file.write(run.dumps().encode())


def batches(
    pieces: Iterable[MarkedPiece], may_end: MayEnd = lambda *_: True
) -> Iterator[list[MarkedPiece]]:
    """The pieces of each shard."""
    batch: list[MarkedPiece] = []
    characters = 0
    for piece in pieces:
        large = characters >= SHARD_CHARACTERS or len(batch) >= SHARD_PIECES
        if large and may_end(batch[-1], piece):
            yield batch
            batch = []
            characters = 0
        batch.append(piece)
        characters += len(piece.text)
    if batch:
        yield batch


def _write_shard(number: int, batch: list[MarkedPiece], add: Callable[[str], Path]) -> SpoolShard:
    texts = [piece.text for piece in batch]
    table = np.empty(len(batch), _PIECE)
    table["characters"] = list(map(len, texts))
    table["marks"] = [piece.marks for piece in batch]
    add(f"{number:06d}.txt").write_bytes("".join(texts).encode())
    save_arrays(add(f"{number:06d}.npy"), table)
    return SpoolShard(
        number=number,
        pieces=len(batch),
        characters=int(table["characters"].sum()),
        documents=int(np.count_nonzero(table["marks"] & OPENS_DOCUMENT)),
    )


def cut_by_shares(
    spool: Spool,
    shards: Sequence[SpoolShard],
    shares: Sequence[float],
    documents: Documents | None = None,
) -> list[list[TextRange]]:
    """Cut a spool at the document boundaries nearest to the given shares of its characters.

    Every part has at least one document; of two boundaries equally near, the earlier is taken.

    Args:
        documents: unit of a document, for the message.
    Returns: the ranges of each part, in order.
    Raises: DataError if there are fewer documents than shares.
    """
    count = sum(shard.documents for shard in shards)
    if count < len(shares):
        raise DataError(
            f"The text has {count} document{'s'[: count != 1]}, too few for {len(shares)} splits: give more "
            f"{'text' if documents == 'line' else 'files'}{_shorter_documents(documents)}, or name the files with "
            "--train, --valid and --test."
        )
    characters = sum(shard.characters for shard in shards)
    cuts = [0]
    first = 0
    for number, share in enumerate(accumulate(shares[:-1]), start=1):
        last = count - len(shares) + number
        first, piece = _nearest_document(spool, shards, share * characters, first + 1, last)
        cuts.append(piece)
    cuts.append(sum(shard.pieces for shard in shards))
    return [list(_ranges(shards, a, b)) for a, b in pairwise(cuts)]


def _shorter_documents(documents: Documents | None) -> str:
    """Advice to choose shorter documents, so that there are more; empty if they are lines or
    records.
    """
    if documents in ("line", "jsonl"):
        return ""
    if documents == "blank-line":
        return ", let lines be documents (--documents line)"
    return ", let paragraphs or lines be documents (--documents blank-line, --documents line)"


def _nearest_document(
    spool: Spool, shards: Sequence[SpoolShard], target: float, first: int, last: int
) -> tuple[int, int]:
    """(document, its first piece), counted over all shards: the document in [first, last] that
    begins nearest.
    """
    candidates: list[tuple[float, int, int]] = []
    documents = 0
    pieces = 0
    characters = 0
    for shard in shards:
        lengths, marks = spool.layout(shard.number)
        openings = np.flatnonzero(marks & OPENS_DOCUMENT)
        starts = characters + (np.cumsum(lengths) - lengths)[openings]
        distances = np.abs(starts - target)

        legal = slice(max(0, first - documents), max(0, last + 1 - documents))
        if distances[legal].size:
            best = legal.start + int(np.argmin(distances[legal]))
            distance = float(distances[best])
            candidates.append((distance, documents + best, pieces + int(openings[best])))

        documents += len(openings)
        pieces += shard.pieces
        characters += shard.characters
    _, document, piece = min(candidates)
    return document, piece


def _ranges(shards: Sequence[SpoolShard], start: int, stop: int) -> Iterator[TextRange]:
    """The parts of shards that hold the pieces [start, stop) of a spool."""
    before = 0
    for shard in shards:
        inside = range(max(start, before) - before, min(stop, before + shard.pieces) - before)
        if inside:
            yield TextRange(shard.number, inside.start, inside.stop)
        before += shard.pieces


def whole(shards: Sequence[SpoolShard]) -> list[TextRange]:
    """All the text of some shards."""
    return [TextRange(shard.number, 0, shard.pieces) for shard in shards]
