"""Cutting one corpus into train, valid and test at the boundaries of documents."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import numpy as np

from stages.errors import DataError
from stages.text.config import Documents
from stages.text.documents import OPENS_DOCUMENT
from stages.text.spool import Spool, SpoolShard, TextRange


def cut_by_shares(
    spool: Spool, shards: Sequence[SpoolShard], shares: Sequence[float], documents: Documents | None = None
) -> list[list[TextRange]]:
    """Cut a spool at the document boundaries nearest to given shares of its characters.

    Every part has at least one document; of two boundaries equally near, the earlier is taken.

    Args:
        documents: what a document of the text is, for the message.
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
    cuts, first = [0], 0
    for number, share in enumerate(accumulate(shares[:-1]), start=1):
        last = count - len(shares) + number
        first, piece = _nearest_document(spool, shards, share * characters, first + 1, last)
        cuts.append(piece)
    cuts.append(sum(shard.pieces for shard in shards))
    return [list(_ranges(shards, a, b)) for a, b in pairwise(cuts)]


def _shorter_documents(documents: Documents | None) -> str:
    """Advice on shorter documents, so that there are more of them; empty where they are lines or records."""
    if documents in ("line", "jsonl"):
        return ""
    if documents == "blank-line":
        return ", let lines be documents (--documents line)"
    return ", let paragraphs or lines be documents (--documents blank-line, --documents line)"


def _nearest_document(
    spool: Spool, shards: Sequence[SpoolShard], target: float, first: int, last: int
) -> tuple[int, int]:
    """(document, its first piece), counted over all shards, of the document in [first, last] that begins nearest."""
    found: list[tuple[float, int, int]] = []
    documents = pieces = characters = 0
    for shard in shards:
        lengths, marks = spool.layout(shard.number)
        opening = np.flatnonzero(marks & OPENS_DOCUMENT)
        distances = np.abs(characters + (np.cumsum(lengths) - lengths)[opening] - target)
        legal = slice(max(0, first - documents), max(0, last + 1 - documents))
        if distances[legal].size:
            best = legal.start + int(np.argmin(distances[legal]))
            found.append((float(distances[best]), documents + best, pieces + int(opening[best])))
        documents, pieces = documents + len(opening), pieces + shard.pieces
        characters += shard.characters
    _, document, piece = min(found)
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
