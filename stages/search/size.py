"""How large an index will be, before there is one."""

from stages.numbers import size
from stages.search.config import IndexConfig, Keys

FLOAT, ID = 4, 8
"""Bytes of a number, and of the row of a key in a list."""


def index_bytes(config: IndexConfig, keys: Keys) -> int | None:
    """Size of the file of a resolved kind; None: of FAISS's own strings it is not known.

    >>> index_bytes(IndexConfig(index="flat"), Keys(1000, 16, "float16"))
    64000
    """
    rows, dim, dtype = keys
    if config.index == "flat":
        return rows * dim * FLOAT
    if config.index == "hnsw":
        return round(rows * (dim * FLOAT + _graph_bytes(int(config.links or 0))))
    if config.index == "ivf-flat":
        return rows * (dim * (2 if dtype == "float16" else FLOAT) + ID) + _lists_bytes(config, dim)
    if config.index == "ivf-pq":
        codes = 2 ** int(config.code_bits or 0) * dim * FLOAT
        return rows * (int(config.code_bytes or 0) + ID) + codes + _lists_bytes(config, dim)
    return None


def cost_in_words(config: IndexConfig, keys: Keys) -> str:
    """Describe the cost of a kind that `auto` chose: memory, training, and the keys that a query is compared with.

    >>> from stages.search.automatic import resolve
    >>> keys = Keys(1_000_000, 128, "float16")
    >>> cost_in_words(resolve(IndexConfig(), keys), keys)
    '265.1 MB; lists learnt from 131,072 keys; a query reads 64 of 2,048 lists, about 31,250 keys'
    """
    taken = size(index_bytes(config, keys) or 0)
    if not config.lists:
        return f"{taken}; a query is compared with all keys"
    probe, lists = int(config.probe or 0), int(config.lists)
    read = f"{probe:,} of {lists:,} lists, about {keys.rows * probe // lists:,} keys"
    return f"{taken}; lists learnt from {config.train_keys:,} keys; a query reads {read}"


def grows_whole(config: IndexConfig) -> bool:
    """Whether the index is filled in one piece, and not put together from parts."""
    return config.index in ("flat", "hnsw")


def memory_to_search(kind: str, size: int | None) -> int | None:
    """Bytes of an index that must be in memory to search it: lists may stay on the disk.

    >>> memory_to_search("ivf-flat", 1000), memory_to_search("hnsw", 1000)
    (0, 1000)
    """
    return 0 if kind in ("ivf-flat", "ivf-pq") else size


def is_lossless(config: IndexConfig) -> bool:
    """Whether it holds keys as they are stored."""
    return config.index in ("flat", "hnsw", "ivf-flat")


def _lists_bytes(config: IndexConfig, dim: int) -> int:
    """The means of all lists, and their sizes."""
    return int(config.lists or 0) * (dim * FLOAT + ID)


def _graph_bytes(links: int) -> float:
    """Mean bytes of a key: its level, where its links begin, twice as many links on the ground level, and those above.

    A key is in the next level with a probability of 1 / links.
    """
    return 4 + 8 + 4 * (2 * links + links / (links - 1))
