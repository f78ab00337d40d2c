"""Factory strings of FAISS: what they ask for, and why they are refused."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import faiss

from stages.errors import UsageError, did_you_mean
from stages.search import KINDS

METRICS = {"l2": faiss.METRIC_L2, "ip": faiss.METRIC_INNER_PRODUCT}


LONGEST = 200
"""Letters of a string; FAISS parses by recursion, and one of 100,000 ends the process."""


class FactoryFacts(NamedTuple):
    """Requirements of a factory string: inverted lists (None: it has none), and keys needed to train."""

    lists: int | None
    fewest_keys: int


def factory_facts(factory: str, dim: int, metric: str) -> FactoryFacts:
    """Raises: UsageError if FAISS does not accept the string for keys of this width and metric."""
    index = from_factory(factory, dim, metric)
    ivf = faiss.try_extract_index_ivf(index)
    if ivf is None:
        return FactoryFacts(None, _fewest_keys(index))
    if ivf.nlist < 1:
        raise UsageError(f"{factory!r} asks for no lists at all; give IVF1 or more.")
    return FactoryFacts(int(ivf.nlist), max(int(ivf.nlist), _fewest_keys(ivf)))


def _fewest_keys(index: Any) -> int:
    quantiser = getattr(faiss.downcast_index(index), "pq", None)
    return 1 if quantiser is None else 2 ** int(quantiser.nbits)


def from_factory(factory: str, dim: int, metric: str) -> Any:
    """The empty index that a string asks for. Raises: UsageError if FAISS does not accept it."""
    if len(factory) > LONGEST:
        raise UsageError(f"A FAISS factory string has at most {LONGEST} letters, not {len(factory):,}.")
    if "NSG" in factory:
        raise UsageError(
            f"{factory!r}: an NSG graph is made from the neighbours of every key, which FAISS finds for hours; choose "
            "hnsw, which needs none."
        )
    graph = re.search(r"HNSW(\d+)", factory)
    if graph and int(graph[1]) < 2:
        raise UsageError(f"{factory!r} asks for a graph without links; give HNSW2 or more, such as HNSW32.")
    narrowed = re.search(r"(PCA[RW]*|ITQ)(\d+)", factory)
    if narrowed and int(narrowed[2]) > dim:
        raise UsageError(f"{factory!r}: {narrowed[0]} would widen keys of width {dim}; {narrowed[1]}{dim} is the most.")
    try:
        index = faiss.index_factory(dim, factory, METRICS[metric])
    except RuntimeError as error:
        raise UsageError(_refusal(factory, dim, str(error))) from error
    if isinstance(index, faiss.IndexIDMap | faiss.IndexIDMap2):
        raise UsageError(f"{factory!r} numbers keys itself, but here their numbers are rows: leave IDMap out.")
    if index.metric_type != METRICS[metric]:
        raise UsageError(f"{factory!r} cannot search by {metric}; choose the other metric or another index.")
    return index


@contextmanager
def refusals() -> Iterator[None]:
    """Turn FAISS's late refusals of keys into errors. Raises: UsageError with FAISS's reason."""
    try:
        yield
    except RuntimeError as error:
        if "faiss" not in str(error):
            raise
        reason = str(error).split("Error: ")[-1]
        raise UsageError(f"FAISS refuses these keys for this index: {reason}; choose another --index.") from error


def _refusal(factory: str, dim: int, reason: str) -> str:
    code = re.search(r"(?<!O)PQ(\d+)", factory)
    if "multiple of the number of subquantizers" in reason and code:
        wanted = int(code[1])
        near = min((m for m in range(1, dim + 1) if dim % m == 0), key=lambda m: abs(m - wanted))
        return f"{factory!r}: PQ{wanted} does not divide keys of width {dim}; PQ{near} does."
    if "could not parse" in reason:
        return f"{factory!r} is neither a kind of index nor a FAISS factory string; {did_you_mean(factory, KINDS)}."
    return f"FAISS refuses {factory!r} for keys of width {dim}: {reason.split('Error: ')[-1]}"
