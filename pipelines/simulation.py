"""What kNN-LM over many keys would cost on many machines, by what an index of this store took: arithmetic, no run.

Every phase is work that machines share or that one does alone, bytes that it reads and writes on the shared file
system, and the time that the longest of these takes. Work is counted in pairs of vectors that are compared, of the
width that was measured; a pair of other vectors takes longer as they are wider.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import NamedTuple

from stages.artifacts.artifact import Artifact
from stages.errors import UsageError
from stages.search.automatic import resolve
from stages.search.config import IndexConfig, Keys
from stages.search.size import index_bytes

ROUNDS = 10
"""Of k-means, FAISS's own number."""
MEMORY_SHARE = 0.5
"""Of a machine's memory an index may take; a larger one stays on the disk."""
READS_A_BLOCK = 2
"""Of every list, if it stays on the disk: for bounds, and for the pairs within them."""
BLOCK_BYTES, FOUND_BYTES = 512 << 20, 24
"""Queries that share a reading: so many bytes, of so many for a neighbour, and eight for a number of its key."""
VALUE_BYTES, ROW_BYTES, ANSWER_BYTES = 4, 8, 12
LEAST_GAIN = 0.9
"""Twice the machines must take at most so much of the time."""


class Measured(NamedTuple):
    """What an index, and its datastore, took in this store."""

    reference: str
    rows: int
    dim: int
    dtype: str
    config: IndexConfig
    encode: float
    """Seconds of a machine to make a key."""
    learn: float
    """Seconds to compare a key with a centre, while the index was built."""
    search: float
    """Seconds to compare a query with a key, by the smallest k that the index measured."""
    choose: float
    """Seconds for each of its k neighbours, by what the largest k takes longer."""
    k: int
    """The largest, which is searched for."""


class Cluster(NamedTuple):
    """Machines like this one; bytes a second that a machine, and that the shared file system gives and takes."""

    machines: int
    memory: int
    network: float
    storage: float

    def with_machines(self, machines: int) -> "Cluster":
        return self._replace(machines=machines)


@dataclass(frozen=True)
class Phase:
    """A step of the work.

    Attributes:
        seconds: of one machine.
        moved: bytes to and from the shared file system.
        alone: whether one machine does it, whatever their number.
        stays: bytes that stay on the disk.
        each: bytes that every machine moves besides, once.
    """

    name: str
    seconds: float
    moved: float
    alone: bool = False
    stays: float = 0
    each: float = 0

    def elapsed(self, cluster: Cluster) -> tuple[float, str]:
        """Seconds by the clock, and what takes them: `processors`, `network` of a machine or `storage`."""
        working = 1 if self.alone else cluster.machines
        times = {
            "processors": self.seconds / working,
            "network": (self.moved / working + self.each) / cluster.network,
            "storage": (self.moved + working * self.each) / cluster.storage,
        }
        longest = max(times, key=times.__getitem__)
        return times[longest], longest


def measured(index: Artifact) -> Measured:
    """Rates of an index with lists and of the datastore that it was made of.

    Raises: UsageError for one without lists, or whose recall and speed were not measured.
    """
    datastore, config, rates = index.input("datastore"), IndexConfig(**index.config), index.metrics
    if not config.lists or index_bytes(config, Keys(1, 1, "float16")) is None:
        raise UsageError(f"{index.reference} has no lists (index {config.index}): name one of kind ivf-flat or ivf-pq.")
    if not rates.get("queries_per_second") or "previous" in index.manifest.inputs:
        raise UsageError(f"{index.reference} did not measure how fast it is searched, built whole: build it so.")
    rows, pairs = rates["rows"], build_pairs(rates["rows"], config)
    compared = int(config.probe or 0) * rows / int(config.lists)
    seconds = {int(k): 1 / rate for k, rate in rates["queries_per_second"].items()}
    least, k = min(seconds), max(seconds)
    return Measured(
        reference=index.reference,
        rows=rows,
        dim=rates["dim"],
        dtype=datastore.metrics["dtype"],
        config=config,
        encode=datastore.manifest.seconds / rows,
        learn=index.manifest.seconds / sum(pairs),
        search=seconds[least] / compared,
        choose=max(0.0, seconds[k] - seconds[least]) / k,
        k=k,
    )


def build_pairs(rows: int, config: IndexConfig) -> tuple[float, float, float]:
    """Vectors compared while lists are learnt, keys are put into them, and recall is measured."""
    lists = int(config.lists or 0)
    return ROUNDS * float(config.train_keys or 0) * lists, float(rows) * lists, float(rows) * config.recall_queries


def larger(found: Measured, keys: int, lists: int | None = None) -> IndexConfig:
    """The same kind of index of more keys; memlm's own number of lists, or another."""
    before = found.config
    config = IndexConfig(
        index=before.index,
        metric=before.metric,
        lists=lists or "auto",
        code_bytes=before.code_bytes,
        code_bits=before.code_bits,
        recall_queries=before.recall_queries,
    )
    return resolve(config, Keys(keys, found.dim, found.dtype))


def phases(found: Measured, config: IndexConfig, keys: int, queries: int, cluster: Cluster) -> list[Phase]:
    """All that is done once for `keys` keys, and then for `queries` tokens that are evaluated."""
    key_bytes = keys * found.dim * (2 if found.dtype == "float16" else 4)
    size = index_bytes(config, Keys(keys, found.dim, found.dtype)) or 0
    learning, adding, recall = (found.learn * pairs for pairs in build_pairs(keys, config))
    stored = key_bytes + keys * VALUE_BYTES
    return [
        Phase("build-datastore", found.encode * keys, stored, stays=stored),
        Phase("learn lists", learning, 0, alone=True),
        Phase("add keys", adding, key_bytes + size),
        Phase("merge lists", 0, 2 * size, alone=True, stays=size),
        Phase("measure recall", recall, key_bytes, alone=True),
        search_phase(found, config, keys, queries, cluster, size),
    ]


def search_phase(found: Measured, config: IndexConfig, keys: int, queries: int, cluster: Cluster, size: int) -> Phase:
    """Neighbours of all queries; an index that a machine cannot hold is read for every block of them."""
    compared = int(config.probe or 0) * keys / int(config.lists or 1)
    seconds = queries * (found.search * compared + found.choose * found.k + found.encode)
    if size <= MEMORY_SHARE * cluster.memory:
        return Phase(f"evaluate {queries:,} tokens", seconds, 0, each=size)
    blocks = max(cluster.machines, ceil(queries * (FOUND_BYTES * found.k + 8 * found.dim) / BLOCK_BYTES))
    return Phase(f"evaluate {queries:,} tokens", seconds, READS_A_BLOCK * blocks * size)


def total(found: Measured, config: IndexConfig, keys: int, queries: int, cluster: Cluster) -> float:
    """Seconds by the clock of all phases, one after the other."""
    return sum(phase.elapsed(cluster)[0] for phase in phases(found, config, keys, queries, cluster))


def scales_to(found: Measured, config: IndexConfig, keys: int, queries: int, cluster: Cluster) -> int:
    """Machines, a power of two, beyond which twice as many save less than a tenth of the time."""
    machines = 1
    while machines < 1 << 20:
        now, twice = (total(found, config, keys, queries, cluster.with_machines(n)) for n in (machines, 2 * machines))
        if twice > LEAST_GAIN * now:
            break
        machines *= 2
    return machines


class Sharded(NamedTuple):
    """An index of which every machine holds a part in memory; every query goes to all."""

    machines: int
    """That are needed to hold it."""
    lists: int
    """Over all: twice the square root of the keys, as few keys are in each then as in a small index."""
    compared: float
    """Keys that a query is compared with."""
    seconds: float
    """Of a machine, for all queries."""
    network: float
    """Bytes of all queries to all machines, and of k neighbours back from each."""


def sharded(found: Measured, keys: int, queries: int, cluster: Cluster) -> Sharded:
    lists = 2 ** round(1 + log2(keys) / 2)
    config = larger(found, keys, lists)
    size = index_bytes(config, Keys(keys, found.dim, found.dtype)) or 0
    machines = max(1, ceil(size / (MEMORY_SHARE * cluster.memory)))
    compared = int(config.probe or 0) * keys / lists
    seconds = queries * (found.search * compared + found.choose * found.k + found.learn * lists + found.encode)
    network = float(queries) * machines * (4 * found.dim + ANSWER_BYTES * found.k)
    return Sharded(machines, lists, compared, seconds, network)


def newest(indexes: Sequence[Artifact]) -> Artifact:
    """The latest index that tells how fast it is. Raises: UsageError if there is none."""
    for index in reversed(indexes):
        try:
            measured(index)
        except UsageError:
            continue
        return index
    raise UsageError(
        "Nothing in this store tells how fast an index is built and searched: make one first "
        "(memlm run quickstart), and name it: memlm plan --keys 3e9 --machines 8 INDEX."
    )
