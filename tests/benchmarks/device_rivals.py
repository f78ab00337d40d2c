"""Other engines beside search on a GPU: FAISS on the host, and its builds for GPUs where they are
installed.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import faiss
import numpy as np

from stages.search.open import searching_gpus

ON_THE_HOST = 512
"""Queries that the host searches for."""
ENGINES = {"faiss-gpu": (False, 135), "faiss-gpu with cuVS": (True, 119)}
"""Builds of FAISS 1.15 for GPUs: whether they search by cuVS, and megabytes of their wheels."""
Engine = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]
"""Rows and squared distances [n, k] of the neighbours of queries [n, d]."""


def rivals(index: faiss.IndexIVF) -> tuple[dict[str, Engine], list[str]]:
    """Engines that search the lists of an index, and a note on each that cannot."""
    found: dict[str, Engine] = {"FAISS on the host": partial(_search, [index])}
    notes = []
    for name, (by_cuvs, megabytes) in ENGINES.items():
        try:
            found[name] = partial(_search, _on_gpu(index, by_cuvs, megabytes))
        except (RuntimeError, AttributeError) as error:
            notes.append(f"Not measured: {name}: {str(error).splitlines()[0]}")
    return found, notes


def _search(held: Sequence[Any], queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    distances, rows = held[0].search(queries, k)
    return rows, distances


def _on_gpu(index: faiss.IndexIVF, by_cuvs: bool, megabytes: int) -> Sequence[Any]:
    """The index as a GPU holds it, and what must live as long. Raises: RuntimeError where FAISS
    cannot.
    """
    if not searching_gpus():
        raise RuntimeError(
            f"not installed: its wheel of {megabytes} MB is too large to be carried."
        )
    if by_cuvs and "CUVS" not in faiss.get_compile_options():
        raise RuntimeError("this FAISS was built without cuVS.")
    options, resources = faiss.GpuClonerOptions(), faiss.StandardGpuResources()
    options.use_cuvs = by_cuvs
    moved = faiss.index_cpu_to_gpu(resources, 0, index, options)
    moved.nprobe = index.nprobe
    return moved, resources
