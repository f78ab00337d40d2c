"""Searches that are compared, each with the settings that its recall and its rate depend on.

All of them look for the neighbours of stored keys, and the row of a query itself does not count:
ours leaves it out, the others are asked for one neighbour more (`others`).
"""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, NamedTuple, Protocol

import faiss
import numpy as np

from stages.search.grouped import GroupedSearcher
from stages.search.keys import StoredKeys, widened
from stages.search.quality import recall
from tests.benchmarks.timing import timed

Setting = dict[str, Any]
PROBES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MANY = 100
"""From so many neighbours on, other settings are tried."""
EQUAL = 0.002
"""Recall that is as much lower than that of ours counts as the same."""
ROTATION_SEED = 5
TRAIN_KEYS = 1 << 16
"""That codes are learnt from; those of 4 bits take 256 keys each."""


class Engine(Protocol):
    """A search whose settings change from call to call."""

    def settings(self, k: int) -> Iterable[Setting]:
        """Those that are tried for k neighbours."""

    def search(self, queries: np.ndarray, rows: np.ndarray, k: int, setting: Setting) -> np.ndarray:
        """Rows near to queries [n, d], which are those of `rows` [n]: ids [n, k], or with their own
        [n, k + 1].
        """


class Ours:
    """The search that stages use; `own` are the settings that it came with."""

    def __init__(self, searcher: GroupedSearcher) -> None:
        self.searcher, self.own = searcher, {"probe": searcher.probe}

    def settings(self, k: int) -> Iterable[Setting]:
        return [
            {"probe": probe}
            for probe in sorted({*PROBES, self.own["probe"]})
            if probe <= self.searcher.ivf.nlist
        ]

    def search(self, queries: np.ndarray, rows: np.ndarray, k: int, setting: Setting) -> np.ndarray:
        self.searcher.probe = setting["probe"]
        return self.searcher.search(queries, k, np.stack([rows, rows + 1], axis=1))[0]


class Plain:
    """FAISS's own search of an index with lists."""

    def __init__(self, index: Any) -> None:
        self.index = index

    def settings(self, k: int) -> Iterable[Setting]:
        return [{"probe": probe} for probe in PROBES if probe <= self.index.nlist]

    def search(self, queries: np.ndarray, rows: np.ndarray, k: int, setting: Setting) -> np.ndarray:
        self.index.nprobe = setting["probe"]
        found: np.ndarray = self.index.search(queries, k + 1)[1]
        return found


class Reranked:
    """FAISS's fast scan of small codes; of the nearest by these, `factor` times k, the nearest by
    the keys themselves.

    Args:
        codes: an index with lists, whose codes are still to be learnt.
        keys: what it is filled with, some at a time.
        sample: some of them, that codes are learnt from.
        stored: all of them, as an index of FAISS.
        rotation: of keys, before they are coded.
    """

    def __init__(
        self, codes: Any, keys: StoredKeys, sample: np.ndarray, stored: Any, rotation: Any = None
    ) -> None:
        codes.train(sample if rotation is None else rotation.apply(sample))
        whole = codes if rotation is None else faiss.IndexPreTransform(rotation, codes)
        for _, block in keys.each():
            whole.add(widened(block))
        self.codes, self.index = codes, faiss.IndexRefine(whole, stored)
        self._kept = whole, stored, rotation  # which FAISS only points to

    def settings(self, k: int) -> Iterable[Setting]:
        factors = (1, 2, 4, 8, 16, 32) if k < MANY else (1, 1.5, 2, 4)
        probes = [
            probe for probe in PROBES if probe <= self.codes.nlist and (k < MANY or probe >= 8)
        ]
        return [{"probe": probe, "factor": factor} for probe, factor in product(probes, factors)]

    def search(self, queries: np.ndarray, rows: np.ndarray, k: int, setting: Setting) -> np.ndarray:
        self.codes.nprobe, self.index.k_factor = setting["probe"], setting["factor"]
        found: np.ndarray = self.index.search(queries, k + 1)[1]
        return found


class Graph:
    """Vamana of `scalable-vs` (Intel), with keys in float16, if the package is installed."""

    def __init__(self, keys: StoredKeys, degree: int, window: int) -> None:
        import svs  # type: ignore[import-not-found]

        threads, stored = faiss.omp_get_max_threads(), np.empty((keys.rows, keys.dim), np.float16)
        for first, block in keys.each():
            stored[first : first + len(block)] = block
        settings = svs.VamanaBuildParameters(graph_max_degree=degree, window_size=window)
        self.index = svs.Vamana.build(settings, stored, svs.DistanceType.L2, num_threads=threads)
        self.index.num_threads = threads

    def settings(self, k: int) -> Iterable[Setting]:
        factors = (1, 2, 4, 8, 16, 32) if k < MANY else (1, 1.25, 1.5, 2)
        return [{"window": round(factor * (k + 1))} for factor in factors]

    def search(self, queries: np.ndarray, rows: np.ndarray, k: int, setting: Setting) -> np.ndarray:
        self.index.search_window_size = setting["window"]
        return np.asarray(self.index.search(queries, k + 1)[0].astype(np.int64))


def product_quantized(
    index: Any, keys: StoredKeys, sample: np.ndarray, stored: Any, parts: int
) -> Reranked:
    """Codes of 4 bits a part, in the lists of an index."""
    codes = faiss.IndexIVFPQFastScan(index.quantizer, index.d, index.nlist, parts, 4)
    return Reranked(codes, keys, sample, stored)


def rabitq(
    index: Any, keys: StoredKeys, sample: np.ndarray, stored: Any, bits: int = 1
) -> Reranked:
    """RaBitQ (Gao and Long 2024), some bits a dimension, in the lists of an index, all of it
    rotated at random.
    """
    rotation = faiss.RandomRotationMatrix(index.d, index.d)
    rotation.init(ROTATION_SEED)
    centres = faiss.IndexFlatL2(index.d)
    centres.add(rotation.apply(index.quantizer.reconstruct_n(0, index.nlist)))
    own_lists, block = True, 32
    codes = faiss.IndexIVFRaBitQFastScan(
        centres, index.d, index.nlist, faiss.METRIC_L2, block, own_lists, bits
    )
    return Reranked(codes, keys, sample, stored, rotation)


def stored_keys(keys: StoredKeys) -> Any:
    """Keys as they are stored, in an index of FAISS."""
    half = keys.dtype == np.float16
    index = (
        faiss.IndexScalarQuantizer(keys.dim, faiss.ScalarQuantizer.QT_fp16)
        if half
        else faiss.IndexFlatL2(keys.dim)
    )
    index.is_trained = True
    for _, block in keys.each():
        index.add(widened(block))
    return index


def others(ids: np.ndarray, rows: np.ndarray, k: int) -> np.ndarray:
    """The first k of each query's ids that are not its own row."""
    order = np.argsort(ids == rows[:, None], axis=1, kind="stable")
    return np.take_along_axis(ids, order, axis=1)[:, :k]


class Tried(NamedTuple):
    """A setting, what it finds of the true neighbours, and the processors' time that it took."""

    setting: Setting
    recall: float
    seconds: float


def tried(
    engine: Engine, queries: np.ndarray, rows: np.ndarray, true: np.ndarray, k: int
) -> list[Tried]:
    """All settings of an engine, one after the other, after one that warms it up."""
    settings = list(engine.settings(k))
    engine.search(queries, rows, k, settings[0])
    found = []
    for setting in settings:
        taken, ids = timed(lambda setting=setting: engine.search(queries, rows, k, setting))
        found.append(Tried(setting, recall(others(ids, rows, k), true, k), taken.cpu))
    return found


def fastest(found: Sequence[Tried], wanted: float) -> Tried:
    """That which reaches a recall in the least time; if none does, that of the highest recall.

    Where all numbers of another are smaller or the same, it is the other, whatever the clock said.
    """
    enough = [one for one in found if one.recall >= wanted]
    if not enough:
        return max(found, key=lambda one: one.recall)
    least = [
        one
        for one in enough
        if not any(_costs_less(other.setting, one.setting) for other in enough)
    ]
    return min(least, key=lambda one: one.seconds)


def _costs_less(one: Setting, other: Setting) -> bool:
    return one != other and all(one[name] <= other[name] for name in one)
