"""The inverted lists of an index, as codes or decoded; they are in memory, or are read from the file on demand.

FAISS writes them at the end of the file (`write_InvertedLists`, 1.15). First come "ilar", the number of lists and the
bytes of a code, both 64 bits. Then comes a table of sizes, after its length. It is "full" and the size of every list.
If at most half of the lists hold keys, it is "sprs" and the numbers and sizes of these lists. Then come the codes and
rows of each list.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

import faiss
import numpy as np

MARK, EVERY_SIZE, SIZES_OF_SOME = b"ilar", b"full", b"sprs"
EMPTY = SIZES_OF_SOME + bytes(8)
"""Bytes after the head if no list holds a key."""
READ_BYTES = 1 << 20
ROW_BYTES = 8


class Lists(Protocol):
    """Rows and codes of lists, by list number; `sizes`: number of keys in each list, int64 [lists]."""

    sizes: np.ndarray

    def ids(self, number: int, part: range | None = None) -> np.ndarray:
        """Rows in a non-empty list, or in a part of it, int64 [n]; they rise if keys were added in order."""

    def codes(self, number: int, part: range | None = None) -> np.ndarray:
        """Their codes, uint8 [n, bytes of a code]."""


class ListsInMemory:
    """Views of the lists of an index in memory."""

    def __init__(self, ivf: Any) -> None:
        self._index, self._lists, self._width = ivf, ivf.invlists, ivf.code_size
        self.sizes = np.array([self._lists.list_size(number) for number in range(ivf.nlist)], np.int64)
        self._views: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def ids(self, number: int, part: range | None = None) -> np.ndarray:
        whole, _ = self._views.get(number) or self._view(number)
        return whole if part is None else whole[part.start : part.stop]

    def codes(self, number: int, part: range | None = None) -> np.ndarray:
        _, whole = self._views.get(number) or self._view(number)
        return whole if part is None else whole[part.start : part.stop]

    def _view(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows and codes of a list; kept, since making the views takes longer than using them."""
        size = int(self.sizes[number])
        ids = faiss.rev_swig_ptr(self._lists.get_ids(number), size)
        codes = faiss.rev_swig_ptr(self._lists.get_codes(number), size * self._width).reshape(size, self._width)
        self._views[number] = ids, codes
        return ids, codes


class Head(NamedTuple):
    """The part of a file before the lists: `bytes` up to the width of a code, and the sizes after it."""

    bytes: bytes
    width: int
    sizes: np.ndarray
    end: int
    """Where the first list begins."""


class ListsInFile:
    """Lists at the end of an index file. Only sizes are in memory; each list is read from the file.

    Raises: ValueError if the file does not end with lists.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._head = path, _head_of(path)
        self.sizes, self._width = self._head.sizes, self._head.width
        self._starts = self._head.end + (self._width + ROW_BYTES) * (np.cumsum(self.sizes) - self.sizes)

    def index(self) -> Any:
        """The index with empty lists; its `ntotal` is that of the file."""
        whole = np.frombuffer(self._head.bytes + EMPTY, np.uint8)
        return faiss.deserialize_index(whole, faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE)

    def ids(self, number: int, part: range | None = None) -> np.ndarray:
        size = int(self.sizes[number])
        rows, first = part or range(size), int(self._starts[number]) + size * self._width
        return self._read(np.dtype(np.int64), len(rows), first + ROW_BYTES * rows.start)

    def codes(self, number: int, part: range | None = None) -> np.ndarray:
        rows = part or range(int(self.sizes[number]))
        first = int(self._starts[number]) + self._width * rows.start
        return self._read(np.dtype(np.uint8), len(rows) * self._width, first).reshape(len(rows), self._width)

    def _read(self, dtype: np.dtype, count: int, offset: int) -> np.ndarray:
        """Read `count` numbers at a byte offset. Raises: OSError if the file has become shorter."""
        found = np.fromfile(self.path, dtype, count, offset=offset)
        if len(found) < count:
            raise OSError(f"{self.path} ends within a list; it was whole when it was opened.")
        return found


def lists_in_file(path: Path) -> ListsInFile | None:
    """The lists at the end of an index file; None if there are none or the file is damaged, which FAISS will report."""
    try:
        return ListsInFile(path)
    except ValueError:
        return None


def filled(lists: Lists) -> list[int]:
    """Numbers of the lists that are not empty."""
    return np.flatnonzero(lists.sizes).tolist()


def write_with_lists(
    trained: Any, rows: int, sizes: np.ndarray, lists: Iterable[tuple[np.ndarray, np.ndarray]], path: Path
) -> None:
    """Write an index with lists that are not in memory; the bytes are those that FAISS would write.

    Args:
        trained: the index, without keys.
        rows: number of keys in all lists.
        sizes: [lists] int64.
        lists: codes [size, bytes of a code] and rows [size] of each list, in order.
    Raises: OSError if the file cannot be written completely.
    """
    # FAISS writes the number of keys into the head, so the empty index must claim it for a moment
    trained.ntotal = faiss.extract_index_ivf(trained).ntotal = rows
    head: bytes = faiss.serialize_index(trained).tobytes()
    trained.ntotal = faiss.extract_index_ivf(trained).ntotal = 0
    assert head.endswith(EMPTY), "FAISS writes lists last"
    with path.open("wb") as file:
        file.write(head.removesuffix(EMPTY) + _table(sizes))
        for codes, ids in lists:
            file.write(np.ascontiguousarray(codes, np.uint8).data)
            file.write(np.ascontiguousarray(ids, np.int64).data)


def _table(sizes: np.ndarray) -> bytes:
    filled = np.flatnonzero(sizes)
    if len(filled) > len(sizes) // 2:
        return EVERY_SIZE + np.uint64(len(sizes)).tobytes() + sizes.astype(np.uint64).tobytes()
    pairs = np.stack([filled, sizes[filled]], axis=1).astype(np.uint64)
    return SIZES_OF_SOME + np.uint64(pairs.size).tobytes() + pairs.tobytes()


def _head_of(path: Path) -> Head:
    """Find the first mark whose table of sizes gives the exact length of the file.

    Raises: ValueError if there is none.
    """
    total, read, at = path.stat().st_size, bytearray(), 0
    with path.open("rb") as file:
        while piece := file.read(READ_BYTES):
            read += piece
            while (at := read.find(MARK, at)) >= 0:
                found = _head_at(file, at, total)
                if found is not None:
                    return found
                at += 1
            # the end of a block may cut a mark
            at = max(0, len(read) - len(MARK) + 1)
            file.seek(len(read))
    raise ValueError("it does not end with inverted lists")


def _head_at(file: BinaryIO, at: int, total: int) -> Head | None:
    """The head that ends with the mark at this offset; None if the bytes there are no mark."""
    file.seek(at + len(MARK))
    lists, width = _numbers(file.read(16), 2)
    kind, (length,) = file.read(4), _numbers(file.read(8), 1)
    # other data may contain the letters of a mark, so implausible tables are rejected
    if lists > at or 8 * length > total - file.tell():
        return None
    table = np.frombuffer(file.read(8 * length), np.int64)
    sizes, end = _sizes(kind, table, lists), file.tell()
    if sizes is None or sizes.min(initial=0) < 0 or sizes.max(initial=0) > total:
        return None
    if end + int(sizes.sum()) * (width + ROW_BYTES) != total:
        return None
    file.seek(0)
    return Head(file.read(at + len(MARK) + 16), width, sizes, end)


def _sizes(kind: bytes, table: np.ndarray, lists: int) -> np.ndarray | None:
    """Number of keys in each list, int64 [lists]; None if the table is not valid."""
    if kind == EVERY_SIZE and len(table) == lists:
        return table
    numbers, sizes = table[::2], np.zeros(lists, np.int64)
    if kind != SIZES_OF_SOME or len(table) % 2 or numbers.min(initial=0) < 0 or numbers.max(initial=-1) >= lists:
        return None
    sizes[numbers] = table[1::2]
    return sizes


def _numbers(raw: bytes, count: int) -> list[int]:
    """Unsigned 64-bit integers; zeros if the file is too short."""
    return list(np.frombuffer(raw.ljust(8 * count, b"\0"), np.uint64).tolist())


class DecodedLists:
    """The inverted lists of an IVF index, decoded one at a time.

    Attributes:
        sizes: [lists] number of keys in each list.
        starts: [lists + 1] offset of each list's first key if all lists are laid end to end.
    """

    def __init__(self, ivf: Any, lists: Lists) -> None:
        self.ivf, self.lists, self.sizes = ivf, lists, lists.sizes
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    def ids(self, number: int, part: range | None = None) -> np.ndarray:
        """Rows in a non-empty list, or in a part of it; they rise, since keys are added in order."""
        return self.lists.ids(number, part)

    def keys(self, number: int, part: range | None = None) -> np.ndarray:
        """Keys of a list, or of a part of it, decoded from the index's codes, [n, dim] float16 or float32."""
        return self.decoded(number, self.lists.codes(number, part))

    def decoded(self, number: int, codes: np.ndarray) -> np.ndarray:
        """Decode codes [n, bytes of a code] of a list, [n, dim] float16 or float32."""
        if isinstance(self.ivf, faiss.IndexIVFFlat):
            return codes.view(np.float32)
        quantizer: Any = self.ivf.pq if isinstance(self.ivf, faiss.IndexIVFPQ) else self.ivf.sq
        if getattr(quantizer, "qtype", None) == faiss.ScalarQuantizer.QT_fp16 and not self.ivf.by_residual:
            return codes.view(np.float16)
        decoded: np.ndarray = quantizer.decode(codes)
        return decoded + self.ivf.quantizer.reconstruct(number) if self.ivf.by_residual else decoded


def holds_whole_keys(ivf: Any) -> bool:
    """Whether lists hold unchanged keys; float16 lists count, since they are only made for float16 keys."""
    if isinstance(ivf, faiss.IndexIVFScalarQuantizer):
        return bool(ivf.sq.qtype == faiss.ScalarQuantizer.QT_fp16 and not ivf.by_residual)
    return isinstance(ivf, faiss.IndexIVFFlat)
