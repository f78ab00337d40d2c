"""Resolves `auto` settings of an index, checks settings against its keys, and estimates its size."""

import re
from math import log2
from typing import Any

from stages.errors import UsageError
from stages.numbers import size
from stages.search import KINDS
from stages.search.config import IndexConfig, Keys, check_probe

APPLIES = {
    "lists": ("ivf-flat", "ivf-pq"),
    "code_bytes": ("ivf-pq",),
    "code_bits": ("ivf-pq",),
    "links": ("hnsw",),
}
"""Settings that only some kinds have; a factory string contains its own values."""

FLAT_ROWS = 50_000
"""Most keys for which `auto` chooses a flat index: lists would save too little time for the recall
that they cost.
"""
MOST_KEYS = 2**31 - 1
"""Most rows of an index, since a row is packed with a score or a place into 64 bits."""
MOST_LISTS = 4096
"""Most lists by `auto`: kNN-LM's number for 103 million keys. With more, choosing lists takes most
of the time.
"""
PROBE = {"ivf-flat": 64, "ivf-pq": 32}
"""Lists that a query reads by `auto`. Whole keys are for accurate neighbours, so more lists are
read. kNN-LM reads 32 lists of codes."""
FACTORY_PROBE = 32
CODE_BYTES = 64
CODE_BITS = 8
LINKS = 32
KEYS_PER_LIST = 64
FEWEST_TRAIN_KEYS = 1 << 17


def automatic_kind(keys: Keys, largest_gigabytes: float) -> tuple[str, str]:
    """The kind of index that `auto` chooses for these keys, and the reason."""
    number_bytes = 2 if keys.dtype == "float16" else 4
    gigabytes = keys.rows * keys.dim * number_bytes / 1e9
    key_size = size(1e9 * gigabytes)
    if keys.rows <= FLAT_ROWS:
        return "flat", f"{keys.rows:,} keys are few enough to compare with all of them"
    if gigabytes <= largest_gigabytes:
        return "ivf-flat", (
            f"{keys.rows:,} keys are many, so a query reads the nearest lists only; whole keys take "
            f"{key_size}, which memory holds, so distances stay exact"
        )
    return "ivf-pq", f"whole keys would take {key_size}, more than {largest_gigabytes:g} GB"


def check_keys(rows: int) -> None:
    """Check the number of keys.

    Raises: UsageError if there are more keys than an index can number.
    """
    if rows > MOST_KEYS:
        raise UsageError(
            f"{rows:,} keys are more than the {MOST_KEYS:,} that an index can number; index a part of them "
            "(memlm build-datastore --fraction)."
        )


def resolve(config: IndexConfig, keys: Keys) -> IndexConfig:
    """Resolve all `auto` settings, and check the settings.

    Raises: UsageError for a setting that the kind does not have, or a value that is not legal for
        these keys; its message names a legal one.
    """
    if config.index == "auto":
        kind, _ = automatic_kind(keys, config.largest_gigabytes)
        config = config.model_copy(update={"index": kind})

    kind = config.index
    changes: dict[str, Any] = dict(_without_inapplicable(config, kind))
    if kind == "ivf-pq":
        changes |= _resolve_code(config, keys)
    if kind in ("ivf-flat", "ivf-pq"):
        num_codes = 2 ** (changes["code_bits"] or 0)
        changes |= _resolve_lists(config, keys, num_codes)
    if kind == "hnsw" and config.links == "auto":
        changes["links"] = LINKS
    if kind not in KINDS:
        changes |= _resolve_factory(config, keys)
    return config.model_copy(update=changes)


def _resolve_lists(config: IndexConfig, keys: Keys, num_codes: int) -> dict[str, int]:
    """Lists, and how many of them are read; training needs a key for each list, and for each code."""
    automatic = config.lists in ("auto", None)
    lists = automatic_lists(keys.rows) if automatic else int(config.lists or 0)
    check_lists(lists, keys)
    return {
        "lists": lists,
        "probe": resolve_probe(config, lists),
        "train_keys": _train_keys(config, keys, lists, max(lists, num_codes)),
    }


def _without_inapplicable(config: IndexConfig, kind: str) -> dict[str, None]:
    absent = [name for name, kinds in APPLIES.items() if kind not in kinds]
    if kind in ("flat", "hnsw"):
        absent += ["probe", "train_keys"]
    for name in absent:
        if getattr(config, name) not in ("auto", None):
            which = ", ".join(APPLIES.get(name, ("ivf-flat", "ivf-pq")))
            raise UsageError(
                f"{name} means nothing to a {kind!r} index: leave it out, or choose index {which}."
            )
    return dict.fromkeys(absent)


def automatic_lists(rows: int) -> int:
    """The power of two nearest to twice the square root of the number of keys.

    For the same number of keys read, more and smaller lists give higher recall.

    >>> automatic_lists(1_000_000)
    2048
    """
    # log2 of 2 * sqrt(rows)
    exponent = round(1 + log2(rows) / 2)
    return min(MOST_LISTS, rows, 2**exponent)


def check_lists(lists: int, keys: Keys) -> None:
    """Check the number of lists.

    Raises: UsageError if there are more lists than keys to put into them.
    """
    if lists > keys.rows:
        raise UsageError(
            f"{lists:,} lists are more than the {keys.rows:,} keys; {automatic_lists(keys.rows):,} would suit them."
        )


def resolve_probe(config: IndexConfig, lists: int) -> int:
    """Number of lists that a query reads. Raises UsageError if there are fewer lists."""
    if config.probe in ("auto", None):
        return min(PROBE.get(config.index, FACTORY_PROBE), lists)
    assert isinstance(config.probe, int)
    check_probe(config.probe, lists, config.index)
    return config.probe


def _resolve_code(config: IndexConfig, keys: Keys) -> dict[str, int]:
    """Bytes and bits of a product code, checked against the keys' width and number."""
    bits = CODE_BITS if config.code_bits in ("auto", None) else int(config.code_bits)
    legal = _legal_code_bytes(bits, keys.dim)
    if not legal:
        raise UsageError(
            f"No code of {bits} bits a part fills whole bytes for keys of width {keys.dim}; use code_bits 8."
        )

    if config.code_bytes in ("auto", None):
        small = [size for size in legal if size <= CODE_BYTES]
        code_bytes = max(small, default=legal[0])
    else:
        code_bytes = int(config.code_bytes)
    if code_bytes not in legal:
        nearest = min(legal, key=lambda size: abs(size - code_bytes))
        raise UsageError(
            f"code_bytes {code_bytes} does not cut keys of width {keys.dim} into equal parts of {bits} bits each; "
            f"{nearest} does."
        )

    num_codes = 2**bits
    if num_codes > keys.rows:
        raise UsageError(
            f"Codes of {bits} bits are learnt from at least {num_codes:,} keys, and there are {keys.rows:,}; "
            "choose index flat or ivf-flat."
        )
    return {"code_bytes": code_bytes, "code_bits": bits}


def _legal_code_bytes(bits: int, dim: int) -> list[int]:
    """Sizes of a code whose parts are equally wide, and fill whole bytes together.

    >>> _legal_code_bytes(4, dim=6)
    [1, 3]
    """
    sizes = []
    for num_parts in range(1, dim + 1):
        code_bits = num_parts * bits
        if dim % num_parts == 0 and code_bits % 8 == 0:
            sizes.append(code_bits // 8)
    return sizes


FACTORY_LISTS = re.compile(r"IVF(\d+)")
"""Number of lists in a factory string of FAISS."""


def _resolve_factory(config: IndexConfig, keys: Keys) -> dict[str, int | None]:
    """Lists to read and training keys of a factory string, whose lists FAISS tells."""
    from stages.search.factory import factory_facts

    # Before FAISS makes the index, which takes memory for each list.
    for number in FACTORY_LISTS.findall(config.index):
        check_lists(int(number), keys)

    lists, fewest = factory_facts(config.index, keys.dim, config.metric)
    if lists is not None:
        check_lists(lists, keys)
    if fewest > keys.rows:
        raise UsageError(
            f"{config.index!r} is learnt from at least {fewest:,} keys, and there are {keys.rows:,}; "
            "choose index flat or ivf-flat."
        )

    if lists is None and isinstance(config.probe, int):
        check_probe(config.probe, 0, config.index)
    probe = None if lists is None else resolve_probe(config, lists)
    train_keys = _train_keys(config, keys, lists or 1, fewest)
    return {"probe": probe, "train_keys": train_keys}


def _train_keys(config: IndexConfig, keys: Keys, lists: int, fewest: int) -> int:
    if config.train_keys in ("auto", None):
        return min(keys.rows, max(KEYS_PER_LIST * lists, FEWEST_TRAIN_KEYS))
    sample = min(keys.rows, int(config.train_keys))
    if sample < fewest:
        raise UsageError(f"train_keys {sample} is too few to learn from; give at least {fewest}.")
    return sample


FLOAT = 4
ID = 8
"""Bytes of a float32 number, and of a row number in a list."""


def index_bytes(config: IndexConfig, keys: Keys) -> int | None:
    """Bytes of the index file, from resolved settings; None: not known for factory strings.

    >>> index_bytes(IndexConfig(index="flat"), Keys(1000, 16, "float16"))
    64000
    """
    rows, dim, dtype = keys
    if config.index == "flat":
        return rows * dim * FLOAT

    if config.index == "hnsw":
        graph_bytes = _graph_bytes(int(config.links or 0))
        return round(rows * (dim * FLOAT + graph_bytes))

    if config.index == "ivf-flat":
        number_bytes = 2 if dtype == "float16" else FLOAT
        key_bytes = dim * number_bytes + ID
        return rows * key_bytes + _lists_bytes(config, dim)

    if config.index == "ivf-pq":
        codebook_bytes = 2 ** int(config.code_bits or 0) * dim * FLOAT
        code_bytes = int(config.code_bytes or 0) + ID
        return rows * code_bytes + codebook_bytes + _lists_bytes(config, dim)
    return None


def cost_in_words(config: IndexConfig, keys: Keys) -> str:
    """Describe the cost of an automatic kind: memory, training keys, and keys that a query is
    compared with.

    >>> from stages.search.automatic import resolve
    >>> keys = Keys(1_000_000, 128, "float16")
    >>> cost_in_words(resolve(IndexConfig(), keys), keys)
    '265.1 MB; lists learnt from 131,072 keys; a query reads 64 of 2,048 lists, about 31,250 keys'
    """
    memory = size(index_bytes(config, keys) or 0)
    if not config.lists:
        return f"{memory}; a query is compared with all keys"
    probe = int(config.probe or 0)
    lists = int(config.lists)
    read = f"{probe:,} of {lists:,} lists, about {keys.rows * probe // lists:,} keys"
    return f"{memory}; lists learnt from {config.train_keys:,} keys; a query reads {read}"


def grows_whole(config: IndexConfig) -> bool:
    """Whether the index is filled in one piece, and not merged from parts."""
    return config.index in ("flat", "hnsw")


def memory_to_search(kind: str, size: int | None) -> int | None:
    """Bytes of an index that must be in memory for a search; lists may stay on the disk.

    >>> memory_to_search("ivf-flat", 1000), memory_to_search("hnsw", 1000)
    (0, 1000)
    """
    return 0 if kind in ("ivf-flat", "ivf-pq") else size


def is_lossless(config: IndexConfig) -> bool:
    """Whether an index of these settings holds the stored keys without loss."""
    return config.index in ("flat", "hnsw", "ivf-flat")


def _lists_bytes(config: IndexConfig, dim: int) -> int:
    """Bytes of the centroids and sizes of all lists."""
    return int(config.lists or 0) * (dim * FLOAT + ID)


def _graph_bytes(links: int) -> float:
    """Mean bytes of a key in an HNSW graph: its level, the offset of its links, and its links.

    A key has 2 * links links on the ground level, and `links` on each level above. It is on the
    next level with probability 1 / links.
    """
    return 4 + 8 + 4 * (2 * links + links / (links - 1))
