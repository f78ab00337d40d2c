"""Settings of build-index and precompute-neighbors, checks of them for a kind of index, and
excluded rows.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from stages.config import Spelling, StageConfig
from stages.errors import UsageError, did_you_mean, nearest
from stages.search import EXACT, KINDS

if TYPE_CHECKING:
    import numpy as np

Auto = Literal["auto"]
Count = Annotated[int, Field(gt=0)]


class IndexConfig(StageConfig):
    """Settings of build-index. Once resolved, settings that do not apply to the kind are None."""

    not_identity = frozenset({"largest_gigabytes"})

    not_options = frozenset(
        {
            "lists",
            "probe",
            "code_bytes",
            "code_bits",
            "links",
            "train_keys",
            "largest_gigabytes",
            "seed",
        }
    )

    index: Annotated[
        str, Field(min_length=1), Spelling("auto|flat|ivf-flat|ivf-pq|hnsw|exact|FACTORY")
    ] = "auto"
    """Kind of index, or a FAISS factory string; auto: by size; exact: of tokens, for exact matches
    of any length.
    """
    metric: Literal["l2", "ip"] = "l2"
    """Squared Euclidean distance, or inner product."""
    lists: Count | Auto | None = "auto"
    """Inverted lists; auto: the power of two nearest to twice the square root of the keys, at most
    4,096.
    """
    probe: Count | Auto | None = "auto"
    """Lists that a query reads; auto: 64 of ivf-flat, else 32, or all if there are fewer."""
    code_bytes: Count | Auto | None = "auto"
    """Bytes of a product-quantised key; auto: 64, or the largest number below that suits the width.
    """
    code_bits: Annotated[int, Field(ge=1, le=12)] | Auto | None = "auto"
    """Bits of one code of a product quantiser; auto: 8."""
    links: Annotated[int, Field(ge=2)] | Auto | None = "auto"
    """Links of a key in an HNSW graph; auto: 32."""
    train_keys: Count | Auto | None = "auto"
    """Keys, drawn at random, on which lists and codes are learnt; auto: 64 a list, at least
    131,072.
    """
    largest_gigabytes: Annotated[float, Field(gt=0)] = 8.0
    """Where whole keys would take more than this, auto compresses them."""
    keep: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the rows that is held, drawn at random: what --merge is to be compared with."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of the sample, of k-means and of the rows that are kept."""
    recall: Annotated[
        int,
        Field(ge=0),
        BeforeValidator(lambda text: 0 if text == "none" else text),
        Spelling("none|SAMPLE"),
    ] = 1000
    """Keys whose neighbours are compared with exact search, which takes long for many keys; of a
    changed index in proportion to what changed; none: recall is not measured."""

    split: str | None = None
    """Split whose contexts an exact index sorts; None: train."""

    @field_validator("index")
    @classmethod
    def _check_kind(cls, index: str) -> str:
        """Check a kind's name; factory strings begin with a capital letter, and FAISS checks them."""
        kinds = ("auto", *KINDS, EXACT)
        if index[:1].islower() and index not in kinds:
            raise ValueError(f"there is no index {index!r}; {did_you_mean(index, kinds)}")
        return index


class Keys(NamedTuple):
    """Keys to index: their number, width, and dtype as stored."""

    rows: int
    dim: int
    dtype: str


def check_probe(probe: int, lists: int | None, index: str) -> None:
    """Check the number of lists that a query reads.

    Raises: UsageError if queries cannot read `probe` lists of an index.

    Args:
        lists: number of lists; 0: the kind has no lists; None: the number is not known.
        index: the index's kind or factory string.
    """
    if lists == 0:
        raise UsageError(f"{index!r} has no lists to probe: leave probe out.")
    if lists is not None and probe > lists:
        raise UsageError(f"probe {probe} is more than the {lists} lists; give at most {lists}.")


WINDOW = re.compile(r"window:[0-9]{1,15}")
EXCLUSIONS = ("self", "window:N", "document")
"""Values of --exclude, besides `none`."""


def checked_exclusion(exclude: str, *others: str) -> str:
    """The exclusion, if it is legal or one of `others`. Raises: ValueError naming the legal values."""
    legal = (*EXCLUSIONS, *others)
    if WINDOW.fullmatch(exclude) or (exclude in legal and exclude != "window:N"):
        return exclude
    near = nearest(exclude, legal)
    meant = f"; did you mean {near!r}?" if near and near != exclude else ""
    raise ValueError(f"expected {', '.join(legal[:-1])} or {legal[-1]}{meant}")


def forbidden_rows(exclude: str, start: int, stop: int, doc_offsets: Any) -> "np.ndarray | None":
    """Rows that tokens start .. stop - 1 of the datastore's own split may not find.

    Args:
        exclude: `none`, `self`, `window:N` (rows i - N … i + N) or `document`.
        doc_offsets: [D + 1] start of each document of the split, and the end of the split.
    Returns: [stop - start, 2] int64, rows first <= row < last that each token may not find; None:
    it may find all.

    >>> forbidden_rows("window:1", 4, 6, [0, 5, 9]).tolist()
    [[3, 6], [4, 7]]
    >>> forbidden_rows("document", 4, 6, [0, 5, 9]).tolist()
    [[0, 5], [5, 9]]
    """
    if exclude == "none":
        return None
    import numpy as np

    tokens = np.arange(start, stop)
    if exclude == "document":
        offsets = np.asarray(doc_offsets[:])
        next_document = np.searchsorted(offsets, tokens, side="right")
        first = offsets[next_document - 1]
        last = offsets[next_document]
        return np.stack([first, last], axis=1)

    width = 0 if exclude == "self" else int(exclude.partition(":")[2])
    first = np.maximum(tokens - width, 0)
    last = tokens + width + 1
    return np.stack([first, last], axis=1)


def excluding_fewer(exclude: str, how: str = "--exclude window:N") -> str:
    """Advice if an exclusion leaves too few rows; `how`: the option, or the command with it."""
    if exclude == "document":
        return f"exclude fewer rows ({how}), or cut the text into documents (memlm tokenize --documents)"
    return f"exclude fewer rows ({how}, a smaller N)"


FEWEST_CANDIDATES = 64
MOST_FURTHER_CANDIDATES = 1024


class NeighborsConfig(StageConfig):
    """Settings of precompute-neighbors. Once resolved, settings that do not apply are None."""

    not_identity = frozenset({"recall"})
    not_options = frozenset({"probe", "recall", "candidates"})

    k: Count = 4
    """Neighbours of a token."""
    queries: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...] | None, Spelling("SPLITS")
    ] = None
    """Splits whose tokens are looked up: train,valid,…; None: every split."""
    exclude: Annotated[
        str,
        AfterValidator(lambda exclude: checked_exclusion(exclude, "none", "auto")),
        Spelling("self|window:N|document|none"),
    ] = "auto"
    """Rows that may not be found by a token of their own split: its own (self), those within N of
    it, those of its document, or none; auto: self."""
    probe: Count | Literal["auto"] | None = "auto"
    """Lists of the index that a query reads; auto: as few as `recall` allows, by what the index
    measured of itself, at most its own number. None: it has no lists."""
    recall: Annotated[float, Field(gt=0, le=1)] = 0.98
    """Share of the neighbours found with the index's own `probe` that an automatic one must still
    find.
    """
    exact: bool = False
    """Re-rank by distances to the stored keys, where the index holds compressed ones."""
    candidates: Count | Literal["auto"] | None = "auto"
    """Neighbours by the index's distance among which the k best by exact distance are taken; auto:
    4 k, at least 64 and at most k + 1,024. None: distances are not recomputed."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of the forward pass that makes queries where they are not stored."""


def lists_to_read(
    config: NeighborsConfig, index: Mapping[str, Any], figures: Mapping[str, Any]
) -> int | None:
    """Number of lists that a query reads: the given one, or the smallest with enough recall.

    Args:
        index: resolved settings of the index.
        figures: metrics of the index.
    Raises: UsageError if the index has fewer lists, or none.
    """
    max_probe = index["probe"]
    if isinstance(config.probe, int):
        num_lists = 0 if max_probe is None else index["lists"]
        check_probe(config.probe, num_lists, index["index"])
        return config.probe

    recall_by_probe = figures.get("recall_by_probe")
    if max_probe is None or recall_by_probe is None or str(max_probe) not in recall_by_probe:
        return max_probe

    # recall was measured for a few k: the next larger one is the safe choice
    best_recall = recall_by_probe[str(max_probe)]
    measured = sorted(int(k) for k in best_recall)
    k = next((value for value in measured if value >= config.k), measured[-1])

    # the index's own number of lists always has enough
    enough = config.recall * best_recall[str(k)]
    fitting = [int(probe) for probe, recall in recall_by_probe.items() if recall[str(k)] >= enough]
    return min(fitting)


def exactness(config: NeighborsConfig, lossless: bool) -> dict[str, Any]:
    """Resolved values of `exact` and `candidates`, for an index that holds keys without loss or
    not.

    Raises: UsageError for candidates if distances are not recomputed, or for fewer candidates than
    neighbours.
    """
    if lossless or not config.exact:
        if isinstance(config.candidates, int):
            why = "its index holds whole keys" if lossless else "that is not asked for (--exact)"
            raise UsageError(f"candidates are for recomputing distances, but {why}: leave it out.")
        return {"exact": lossless, "candidates": None}
    if isinstance(config.candidates, int):
        if config.candidates < config.k:
            raise UsageError(f"{config.candidates} candidates are fewer than k = {config.k}.")
        return {}
    max_candidates = config.k + MOST_FURTHER_CANDIDATES
    return {"candidates": min(max(FEWEST_CANDIDATES, 4 * config.k), max_candidates)}
