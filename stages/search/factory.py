"""Empty FAISS indexes, by kind or factory string, before training."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import faiss

from stages.errors import UsageError, did_you_mean
from stages.search import KINDS
from stages.search.config import IndexConfig

METRICS = {"l2": faiss.METRIC_L2, "ip": faiss.METRIC_INNER_PRODUCT}


LONGEST = 200
"""Most characters of a factory string; FAISS parses by recursion, and 100,000 characters crash the
process.
"""


def factory_facts(factory: str, dim: int, metric: str) -> tuple[int | None, int]:
    """Number of lists of a factory string (None: it has none), and of keys needed to train.

    Raises: UsageError if FAISS does not accept the string for keys of this width and metric.
    """
    index = from_factory(factory, dim, metric)
    ivf = faiss.try_extract_index_ivf(index)
    if ivf is None:
        return None, _fewest_keys(index)
    if ivf.nlist < 1:
        raise UsageError(f"{factory!r} asks for no lists at all; give IVF1 or more.")
    return int(ivf.nlist), max(int(ivf.nlist), _fewest_keys(ivf))


def _fewest_keys(index: Any) -> int:
    quantiser = getattr(faiss.downcast_index(index), "pq", None)
    return 1 if quantiser is None else 2 ** int(quantiser.nbits)


def from_factory(factory: str, dim: int, metric: str) -> Any:
    """The empty index of a factory string. Raises: UsageError if FAISS does not accept the string."""
    if len(factory) > LONGEST:
        raise UsageError(
            f"A FAISS factory string has at most {LONGEST} letters, not {len(factory):,}."
        )
    if "NSG" in factory:
        raise UsageError(
            f"{factory!r}: an NSG graph is made from the neighbours of every key, which FAISS finds for hours; choose "
            "hnsw, which needs none."
        )
    graph = re.search(r"HNSW(\d+)", factory)
    if graph and int(graph[1]) < 2:
        raise UsageError(
            f"{factory!r} asks for a graph without links; give HNSW2 or more, such as HNSW32."
        )
    narrowed = re.search(r"(PCA[RW]*|ITQ)(\d+)", factory)
    if narrowed and int(narrowed[2]) > dim:
        raise UsageError(
            f"{factory!r}: {narrowed[0]} would widen keys of width {dim}; {narrowed[1]}{dim} is the most."
        )
    try:
        index = faiss.index_factory(dim, factory, METRICS[metric])
    except RuntimeError as error:
        raise UsageError(_refusal(factory, dim, str(error))) from error
    if isinstance(index, faiss.IndexIDMap | faiss.IndexIDMap2):
        raise UsageError(
            f"{factory!r} numbers keys itself, but here their numbers are rows: leave IDMap out."
        )
    if index.metric_type != METRICS[metric]:
        raise UsageError(
            f"{factory!r} cannot search by {metric}; choose the other metric or another index."
        )
    return index


@contextmanager
def refusals() -> Iterator[None]:
    """Turn errors that FAISS raises for keys into usage errors. Raises: UsageError with FAISS's
    reason.
    """
    try:
        yield
    except RuntimeError as error:
        if "faiss" not in str(error):
            raise
        reason = str(error).split("Error: ")[-1]
        raise UsageError(
            f"FAISS refuses these keys for this index: {reason}; choose another --index."
        ) from error


def _refusal(factory: str, dim: int, reason: str) -> str:
    """FAISS's reason in words of this package, with an index that it would accept."""
    # not the PQ of OPQ, which is a rotation
    code = re.search(r"(?<!O)PQ(\d+)", factory)
    if "multiple of the number of subquantizers" in reason and code:
        num_codes = int(code[1])
        divisors = [number for number in range(1, dim + 1) if dim % number == 0]
        nearest = min(divisors, key=lambda number: abs(number - num_codes))
        return f"{factory!r}: PQ{num_codes} does not divide keys of width {dim}; PQ{nearest} does."
    if "could not parse" in reason:
        return f"{factory!r} is neither a kind of index nor a FAISS factory string; {did_you_mean(factory, KINDS)}."
    faiss_reason = reason.split("Error: ")[-1]
    return f"FAISS refuses {factory!r} for keys of width {dim}: {faiss_reason}"


EF_CONSTRUCTION = 200
KEYS_PER_CODE = 256
"""Most training keys for each code; FAISS's default."""
NO_TABLE = -1
"""Value that stops training from making tables for FAISS's own search, which is not used here."""


def empty_index(config: IndexConfig, dim: int, dtype: str) -> Any:
    """The untrained index that resolved settings describe.

    IVF-flat holds float16 keys in float16, without loss, and float32 keys in float32.
    """
    # residuals of float16 keys would be rounded again, so the lists would not hold the keys without
    # loss
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
    if config.index == "flat":
        return "Flat"
    if config.index == "hnsw":
        return f"HNSW{config.links}"
    if config.index == "ivf-flat":
        storage = "SQfp16" if dtype == "float16" else "Flat"
        return f"IVF{config.lists},{storage}"
    if config.index == "ivf-pq":
        assert config.code_bytes is not None and config.code_bits is not None
        code_bits = int(config.code_bits)
        num_parts = int(config.code_bytes) * 8 // code_bits
        return f"IVF{config.lists},PQ{num_parts}x{code_bits}"
    # all other kinds are factory strings
    return config.index


def _seed(index: Any, seed: int) -> None:
    """Seed k-means, and stop it from sampling the keys that it is given."""
    ivf = faiss.try_extract_index_ivf(index)
    encoder = faiss.downcast_index(index if ivf is None else ivf)
    product = getattr(encoder, "pq", None)
    for quantiser, max_keys in ((ivf, 1 << 24), (product, KEYS_PER_CODE)):
        if quantiser is not None:
            quantiser.cp.seed = seed
            quantiser.cp.min_points_per_centroid = 1
            quantiser.cp.max_points_per_centroid = max_keys
