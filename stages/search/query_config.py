"""Settings of precompute-neighbors: what is left to `auto`, and what is legal for which index."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from stages.config import Spelling, StageConfig
from stages.errors import UsageError
from stages.search.automatic import check_probe
from stages.search.config import Count
from stages.search.exclusion import checked_exclusion

FEWEST_CANDIDATES, MOST_FURTHER_CANDIDATES = 64, 1024


class NeighborsConfig(StageConfig):
    """Settings of precompute-neighbors. What does not apply is None once resolved."""

    not_identity = frozenset({"recall"})
    not_options = frozenset({"probe", "recall", "candidates"})

    k: Count = 4
    """Neighbours of a token."""
    queries: Annotated[tuple[Annotated[str, Field(min_length=1)], ...] | None, Spelling("SPLITS")] = None
    """Splits whose tokens are looked up: train,valid,…; None: every split."""
    exclude: Annotated[
        str,
        AfterValidator(lambda exclude: checked_exclusion(exclude, "none", "auto")),
        Spelling("self|window:N|document|none"),
    ] = "auto"
    """Rows that may not be found by a token of their own split: its own (self), those within N of it, those of its
    document, or none; auto: self."""
    probe: Count | Literal["auto"] | None = "auto"
    """Lists of the index that a query reads; auto: as few as `recall` allows, by what the index measured of
    itself, at most its own number. None: it has no lists."""
    recall: Annotated[float, Field(gt=0, le=1)] = 0.98
    """Share of the neighbours found with the index's own `probe` that an automatic one must still find."""
    exact: bool = False
    """Re-rank by distances to the stored keys, where the index holds compressed ones."""
    candidates: Count | Literal["auto"] | None = "auto"
    """Neighbours by the index's distance among which the k best by exact distance are taken; auto: 4 k, at
    least 64 and at most k + 1,024. None: distances are not recomputed."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of the forward pass that makes queries where they are not stored."""


def lists_to_read(config: NeighborsConfig, index: Mapping[str, Any], figures: Mapping[str, Any]) -> int | None:
    """Lists that a query reads: as asked, or the fewest that lose no more neighbours than allowed.

    Args:
        index: resolved settings of the index.
        figures: what it measured of itself.
    Raises: UsageError if that is more than the index has, or it has none.
    """
    most = index["probe"]
    if isinstance(config.probe, int):
        check_probe(config.probe, 0 if most is None else index["lists"], index["index"])
        return config.probe
    table = figures.get("recall_by_probe")
    if most is None or table is None or str(most) not in table:
        return most
    measured = sorted(int(k) for k in table[str(most)])
    k = str(next((at for at in measured if at >= config.k), measured[-1]))
    enough = config.recall * table[str(most)][k]
    return min(int(probe) for probe, recall in table.items() if recall[k] >= enough)


def exactness(config: NeighborsConfig, lossless: bool) -> dict[str, Any]:
    """`exact` and `candidates` as they come out for an index that does or does not hold whole keys.

    Raises: UsageError for candidates where distances are not recomputed, or fewer than neighbours.
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
    most = config.k + MOST_FURTHER_CANDIDATES
    return {"candidates": min(max(FEWEST_CANDIDATES, 4 * config.k), most)}
