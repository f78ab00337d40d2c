"""The inverted lists of an IVF index, as codes or as decoded keys; they are in memory, or mapped
from a file.

FAISS writes them at the end of the file (`write_InvertedLists`, 1.15). First come "ilar", the
number of lists and the bytes of a code, both 64 bits. Then comes a table of sizes, after its
length. It is "full" and the size of every list. If at most half of the lists hold keys, it is
"sprs" and the numbers and sizes of these lists. Then come the codes and rows of each list.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import faiss
import numpy as np

EVERY_SIZE = b"full"
SIZES_OF_SOME = b"sprs"
EMPTY = SIZES_OF_SOME + bytes(8)
"""Bytes after the head if no list holds a key."""
ROW_BYTES = 8
KINDS_OF_KEYS = (faiss.IndexIVFFlat, faiss.IndexIVFPQ, faiss.IndexIVFScalarQuantizer)
"""Kinds of index whose keys are all in lists, and can be decoded from them."""
WHOLE = slice(None)


class InvertedLists:
    """The lists of an IVF index by number; rows rise within a list, since keys are added in order.

    Attributes:
        sizes: [lists] number of keys in each list, int64.
        starts: [lists + 1] offset of each list's first key if all lists are laid end to end.
        mapped: whether each use reads them from the file.
    """

    def __init__(self, ivf: Any) -> None:
        self.ivf = ivf
        self._lists = faiss.downcast_InvertedLists(ivf.invlists)
        self.mapped = not isinstance(self._lists, faiss.ArrayInvertedLists)

        sizes = [self._lists.list_size(number) for number in range(ivf.nlist)]
        self.sizes = np.array(sizes, np.int64)
        self.starts = np.zeros(ivf.nlist + 1, np.int64)
        np.cumsum(self.sizes, out=self.starts[1:])

        # rows and codes by number of a list, see `_view`
        self._views: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    @property
    def filled(self) -> list[int]:
        """Numbers of the lists that are not empty."""
        return np.flatnonzero(self.sizes).tolist()

    def ids(self, number: int, part: slice = WHOLE) -> np.ndarray:
        """Rows in a non-empty list, or in a part of it, int64 [n]."""
        return self._view(number)[0][part]

    def codes(self, number: int, part: slice = WHOLE) -> np.ndarray:
        """Their codes, uint8 [n, bytes of a code]."""
        return self._view(number)[1][part]

    def keys(self, number: int, part: slice = WHOLE) -> np.ndarray:
        """Their keys, decoded, [n, dim] float16 or float32."""
        codes = self.codes(number, part)
        if isinstance(self.ivf, faiss.IndexIVFFlat):
            return codes.view(np.float32)
        if holds_whole_keys(self.ivf):
            return codes.view(np.float16)

        is_product = isinstance(self.ivf, faiss.IndexIVFPQ)
        quantizer: Any = self.ivf.pq if is_product else self.ivf.sq
        decoded: np.ndarray = quantizer.decode(codes)
        if self.ivf.by_residual:
            # codes are of the difference from the list's centroid
            return decoded + self.ivf.quantizer.reconstruct(number)
        return decoded

    def _view(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows [n] and codes [n, bytes of a code] of a list.

        They are kept, since making the views takes longer than using them.
        """
        if number not in self._views:
            size = int(self.sizes[number])
            code_bytes = self.ivf.code_size
            ids = faiss.rev_swig_ptr(self._lists.get_ids(number), size)
            codes = faiss.rev_swig_ptr(self._lists.get_codes(number), size * code_bytes)
            self._views[number] = ids, codes.reshape(size, code_bytes)
        return self._views[number]


def write_with_lists(
    trained: Any,
    rows: int,
    sizes: np.ndarray,
    lists: Iterable[tuple[np.ndarray, np.ndarray]],
    path: Path,
) -> None:
    """Write an index with lists that are not in memory; the bytes are those that FAISS would write.

    Args:
        trained: the index, without keys.
        rows: number of keys in all lists.
        sizes: [lists] int64.
        lists: codes [size, bytes of a code] and rows [size] of each list with keys, in order.
    Raises: OSError if the file cannot be written completely.
    """
    head = _head(trained, rows)
    filled = np.flatnonzero(sizes)
    # FAISS names the lists with keys where they are at most half of all
    if len(filled) > len(sizes) // 2:
        kind = EVERY_SIZE
        table = sizes.astype(np.uint64)
    else:
        kind = SIZES_OF_SOME
        table = np.stack([filled, sizes[filled]], axis=1).astype(np.uint64)
    table_length = np.uint64(table.size)

    with path.open("wb") as file:
        file.write(head + kind + table_length.tobytes() + table.tobytes())
        for codes, ids in lists:
            file.write(np.ascontiguousarray(codes, np.uint8).data)
            file.write(np.ascontiguousarray(ids, np.int64).data)


def _head(trained: Any, rows: int) -> bytes:
    """The bytes of an index of this many keys that come before the table of sizes."""
    ivf = faiss.extract_index_ivf(trained)
    # FAISS writes the number of keys into the head, so the empty index must claim it for a moment
    trained.ntotal = rows
    ivf.ntotal = rows
    head: bytes = faiss.serialize_index(trained).tobytes()
    trained.ntotal = 0
    ivf.ntotal = 0

    assert head.endswith(EMPTY), "FAISS writes lists last"
    return head.removesuffix(EMPTY)


def holds_whole_keys(ivf: Any) -> bool:
    """Whether lists hold unchanged keys; float16 lists count, since they are only made for float16
    keys.
    """
    if isinstance(ivf, faiss.IndexIVFScalarQuantizer):
        return bool(ivf.sq.qtype == faiss.ScalarQuantizer.QT_fp16 and not ivf.by_residual)
    return isinstance(ivf, faiss.IndexIVFFlat)
