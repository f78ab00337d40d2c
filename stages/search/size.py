"""How large an index will be, before there is one."""

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


def grows_whole(config: IndexConfig) -> bool:
    """Whether the index is filled in one piece, and not put together from parts."""
    return config.index in ("flat", "hnsw")


def is_lossless(config: IndexConfig) -> bool:
    """Whether it holds keys as they are stored."""
    return config.index in ("flat", "hnsw", "ivf-flat")


def _lists_bytes(config: IndexConfig, dim: int) -> int:
    """The means of all lists, and their sizes."""
    return int(config.lists or 0) * (dim * FLOAT + ID)


def _graph_bytes(links: int) -> float:
    """Of a key on average: its level, where its links begin, twice as many links on the ground, and those above.

    A key is in the next level with a probability of 1 / links.
    """
    return 4 + 8 + 4 * (2 * links + links / (links - 1))
