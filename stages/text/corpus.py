"""A list of files as one stream of marked pieces."""

from collections.abc import Iterable, Iterator

from stages.errors import DataError
from stages.text.documents import BOUNDARIES, MarkedPiece, mark
from stages.text.records import TextFile, records


def read_corpus(files: Iterable[TextFile], documents: str) -> Iterator[MarkedPiece]:
    """Stream the text of files, documents and paragraphs marked.

    Args:
        files: in order; each begins a document, as each record of a `.jsonl` file does.
        documents: where else documents begin, a key of `documents.BOUNDARIES`.
    Raises: DataError naming the first file that is empty or that something is wrong with.
    """
    for file in files:
        empty = True
        for record in records(file):
            for piece in mark(record, BOUNDARIES[documents]):
                empty = False
                yield piece
        if empty:
            raise DataError(f"{file.path} is empty; expected text.")
