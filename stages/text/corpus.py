"""A list of files as one stream of marked pieces."""

from collections.abc import Iterable, Iterator, Sequence

from stages.errors import DataError
from stages.text.documents import BOUNDARIES, MarkedPiece, mark
from stages.text.pieces import pieces
from stages.text.records import TextFile, records


def beginnings(files: Sequence[TextFile], documents: str, most: float) -> Iterator[MarkedPiece]:
    """Read like `read_corpus`, but only the beginning of each file: about `most` bytes of all together."""
    for file in files:
        read = 0
        for piece in read_corpus([file], documents):
            yield piece
            read += len(piece.text.encode())
            if read >= most / len(files):
                break


def read_corpus(files: Iterable[TextFile], documents: str) -> Iterator[MarkedPiece]:
    """Stream the text of files, documents and paragraphs marked; each file's or record's first piece has its name.

    Args:
        files: in order; each begins a document, as each record of a `.jsonl` file does.
        documents: where else documents begin, a key of `documents.BOUNDARIES`.
    Raises: DataError naming the first file that is empty or that something is wrong with.
    """
    for file in files:
        empty = True
        for record in records(file):
            name: str | None = record.name
            for piece in mark(pieces(record.blocks), BOUNDARIES[documents]):
                yield piece if name is None else piece._replace(name=name)
                empty, name = False, None
        if empty:
            raise DataError(f"{file.path} is empty; expected text.")
