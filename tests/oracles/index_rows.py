"""Every key that an index holds, compared with its datastore's row; FAISS reads the file, nothing
of memlm does.
"""

import sys
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import zarr


def differing_rows(path: Path, keys: np.ndarray) -> list[int]:
    """Rows whose stored code is not that of the datastore's key; also rows that are missing or
    there twice.

    Args:
        path: an index file.
        keys: [rows, dim], the datastore's.
    """
    index: Any = faiss.read_index(str(path))
    wide = np.ascontiguousarray(keys, np.float32)
    ivf = faiss.try_extract_index_ivf(index)
    if ivf is None:
        assert index.ntotal == len(keys)
        same = np.asarray(index.reconstruct_n(0, len(keys))) == wide
        return np.flatnonzero(~same.all(axis=1)).tolist()
    before = index.chain.at(0).apply(wide) if isinstance(index, faiss.IndexPreTransform) else wide
    rows, lists, codes = _entries(ivf)
    wrong = np.bincount(rows, minlength=len(keys)) != 1
    assert len(wrong) == len(keys), "an unknown row"
    wrong[rows] |= (codes != _encoded(ivf, before[rows], lists)).any(axis=1)
    return np.flatnonzero(wrong).tolist()


def _entries(ivf: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, list and code of each entry: int64 [n], int64 [n], uint8 [n, bytes of a code]."""
    ids, lists, codes = [], [], []
    for number in range(ivf.nlist):
        size = ivf.invlists.list_size(number)
        if size:
            ids.append(faiss.rev_swig_ptr(ivf.invlists.get_ids(number), size).copy())
            found = faiss.rev_swig_ptr(ivf.invlists.get_codes(number), size * ivf.code_size)
            codes.append(found.reshape(size, ivf.code_size).copy())
            lists.append(np.full(size, number))
    return np.concatenate(ids), np.concatenate(lists), np.concatenate(codes)


def _encoded(ivf: Any, keys: np.ndarray, lists: np.ndarray) -> np.ndarray:
    """Codes of keys in the lists in which they are stored, uint8 [n, bytes of a code]."""
    codes = np.zeros((len(keys), ivf.code_size), np.uint8)
    ivf.encode_vectors(
        len(keys),
        faiss.swig_ptr(np.ascontiguousarray(keys)),
        faiss.swig_ptr(np.ascontiguousarray(lists, np.int64)),
        faiss.swig_ptr(codes),
    )
    return codes


def main() -> None:
    """Print the differing rows; arguments: the folder of an index and that of its datastore."""
    index, datastore = map(Path, sys.argv[1:])
    keys: Any = zarr.open_group(datastore / "datastore.zarr", mode="r")["keys"]
    print(*differing_rows(index / "index.faiss", np.asarray(keys[:])))


if __name__ == "__main__":
    main()
