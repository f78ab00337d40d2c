"""FAISS index objects by name: empty, to be trained and filled."""

from typing import Any

import faiss

from stages.search.config import IndexConfig
from stages.search.factory_string import from_factory

EF_CONSTRUCTION = 200
KEYS_PER_CODE = 256
"""Training keys used for each code; FAISS's own number."""
NO_TABLE = -1
"""Training would end by making tables for a search that is not FAISS's own here."""


def empty_index(config: IndexConfig, dim: int, dtype: str) -> Any:
    """An index as resolved settings describe it, not trained yet.

    IVF-flat holds float16 keys as they are (2 bytes a number, nothing lost); float32 keys in float32.
    """
    index = from_factory(factory_string(config, dtype), dim, config.metric)
    if config.index == "ivf-flat" and dtype == "float16":
        index.by_residual = False
    if isinstance(index, faiss.IndexIVFPQ):
        index.use_precomputed_table = NO_TABLE
    if isinstance(index, faiss.IndexHNSW):
        index.hnsw.efConstruction = EF_CONSTRUCTION
    _seed(index, config.seed)
    return index


def factory_string(config: IndexConfig, dtype: str) -> str:
    """FAISS's factory string of a resolved kind."""
    if config.index == "ivf-pq":
        assert config.code_bytes is not None and config.code_bits is not None
        parts = int(config.code_bytes) * 8 // int(config.code_bits)
        return f"IVF{config.lists},PQ{parts}x{config.code_bits}"
    ivf_flat = f"IVF{config.lists},{'SQfp16' if dtype == 'float16' else 'Flat'}"
    return {"flat": "Flat", "ivf-flat": ivf_flat, "hnsw": f"HNSW{config.links}"}.get(config.index, config.index)


def _seed(index: Any, seed: int) -> None:
    """Seed k-means, and let it learn from exactly the keys that it is given."""
    ivf = faiss.try_extract_index_ivf(index)
    product = getattr(faiss.downcast_index(index if ivf is None else ivf), "pq", None)
    for quantiser, most in ((ivf, 1 << 24), (product, KEYS_PER_CODE)):
        if quantiser is not None:
            quantiser.cp.seed = seed
            quantiser.cp.min_points_per_centroid = 1
            quantiser.cp.max_points_per_centroid = most
