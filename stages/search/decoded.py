"""The lists of an IVF index, decoded."""

from typing import Any

import faiss
import numpy as np

from stages.search.lists import Lists


class DecodedLists:
    """The inverted lists of an IVF index, decoded one at a time.

    Attributes:
        sizes: [lists] keys in each.
        starts: [lists + 1] position of each list's first entry when all lists are laid end to end.
    """

    def __init__(self, ivf: Any, lists: Lists) -> None:
        self.ivf, self.lists, self.sizes = ivf, lists, lists.sizes
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    def ids(self, number: int, part: range | None = None) -> np.ndarray:
        """Rows in a list, or in a part of it, rising since keys are added in order. The list is not empty."""
        return self.lists.ids(number, part)

    def keys(self, number: int, part: range | None = None) -> np.ndarray:
        """Keys of a list, or of a part of it, as the index knows them, [n, dim] float16 or float32."""
        codes = self.lists.codes(number, part)
        if isinstance(self.ivf, faiss.IndexIVFFlat):
            return codes.view(np.float32)
        quantizer: Any = self.ivf.pq if isinstance(self.ivf, faiss.IndexIVFPQ) else self.ivf.sq
        if getattr(quantizer, "qtype", None) == faiss.ScalarQuantizer.QT_fp16 and not self.ivf.by_residual:
            return codes.view(np.float16)
        decoded: np.ndarray = quantizer.decode(codes)
        return decoded + self.ivf.quantizer.reconstruct(number) if self.ivf.by_residual else decoded
