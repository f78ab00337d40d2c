"""Limits of the amounts that sources read. Free of torch."""

from collections.abc import Iterable, Mapping

from stages.artifacts.artifact import Artifact
from stages.memory.hyperparameter import Hyperparameter

SIZE = Hyperparameter(
    "cache size",
    axis="positions back",
    grid=(50, 100, 200, 500, 1000, 2000, 5000, 10_000),
    example="2000",
    untuned=(2048,),
)
"""The grid is that of Grave et al. 2017."""


def split_tokens(read: Mapping[str, Artifact], split: str) -> int:
    """Number of tokens of a split that an evaluation reads."""
    tokens: int = read["tokens"].metrics["splits"][split]["tokens"]
    return tokens


def longest_split(read: Mapping[str, Artifact], splits: tuple[str, ...]) -> int | None:
    """Number of tokens of the longest of some splits; None without splits.

    A text from outside the corpus is in no split, and limits nothing.
    """
    return max((split_tokens(read, split) for split in splits), default=None)


def limited(amounts: Iterable[float], limit: int | None) -> tuple[int, ...]:
    """Amounts in ascending order, each once and at most `limit`; None: without a limit.

    >>> limited((4, 16, 64), 10), limited((16, 4), None)
    ((4, 10), (4, 16))
    """
    whole = {int(amount) for amount in amounts}
    if limit is not None:
        whole = {min(amount, limit) for amount in whole}
    return tuple(sorted(whole))
