"""Distributions of the next token that stored neighbours give, and their temperature. Free of torch.

Shapes: n positions, k neighbours each.
"""

from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np
from jaxtyping import Float, Float32, Int32, Integer

from stages.artifacts.artifact import Artifact
from stages.methods.config import TRAIN

TUNED_ON = 10_000
"""Positions of the training split on which the temperature is tuned."""
BLOCKS = 8
"""Blocks of consecutive positions, spread over the split, that make these up."""
FRACTIONS = tuple(float(f"{fraction:.4g}") for fraction in np.geomspace(0.01, 2, 16))
"""Temperatures that are tried, as fractions of the spread of scores."""


PACKED = np.dtype([("token", np.int32), ("share", np.float32)])
"""A token and its share, together in a file."""


class NeighborLabels(NamedTuple):
    """q of n positions: tokens, each once, and their shares.

    Shares of a position sum to 1. Empty places have the share 0; a position without neighbours has
    nothing else.
    """

    tokens: Int32[np.ndarray, "n k"]
    shares: Float32[np.ndarray, "n k"]

    def packed(self) -> np.ndarray:
        """One array of pairs, of dtype `PACKED`, which one file can hold."""
        pairs = np.empty(self.tokens.shape, PACKED)
        pairs["token"] = self.tokens
        pairs["share"] = self.shares
        return pairs

    @classmethod
    def unpacked(cls, pairs: np.ndarray) -> Self:
        """The labels of `packed`, as views of it."""
        return cls(pairs["token"], pairs["share"])


class RankedNeighbors(NamedTuple):
    """Neighbours of n positions as an artifact stores them, best first."""

    tokens: Integer[np.ndarray, "n k"]
    """The token of each neighbour; -1 where one is missing."""
    scores: Float[np.ndarray, "n k"]
    """Minus the squared distances, or inner products."""


def neighbor_labels(neighbors: RankedNeighbors, temperature: float) -> NeighborLabels:
    """q(w) = Σ_{j: v_j = w} exp(s_j / τ) / Σ_j exp(s_j / τ).

    Source: Khandelwal et al. 2020 (kNN-LM, arXiv:1911.00172), equation 2.

    Three neighbours are equally near; two of them hold token 7:

    >>> three = RankedNeighbors(np.array([[7, 5, 7]]), np.zeros((1, 3)))
    >>> labels = neighbor_labels(three, temperature=1.0)
    >>> labels.tokens.tolist(), labels.shares.round(3).tolist()
    ([[5, 0, 7]], [[0.3330000042915344, 0.0, 0.6669999957084656]])
    """
    weights = _weights(neighbors, temperature)
    # [n, k] each: equal tokens stand side by side
    tokens, sorted_weights = _sorted_by_token(neighbors.tokens, weights)

    # The last neighbour of each token gets the sum of the token's weights.
    is_last = np.ones(tokens.shape, bool)
    is_last[:, :-1] = tokens[:, 1:] != tokens[:, :-1]
    shares = _sums_of_runs(sorted_weights, is_last)

    # Places without a share have any token: 0 is one that exists.
    distinct = np.where(shares > 0, tokens, 0)
    return NeighborLabels(distinct.astype(np.int32), shares.astype(np.float32))


def _sorted_by_token(tokens: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of each row in ascending order, and their weights in the same order."""
    k = tokens.shape[1]
    # Numbers are sorted several times as fast as their places are found. So each holds its place.
    numbers = np.sort(tokens.astype(np.int64) * k + np.arange(k), axis=1)
    places = numbers % k
    return numbers // k, np.take_along_axis(weights, places, 1)


def _sums_of_runs(values: np.ndarray, is_last: np.ndarray) -> np.ndarray:
    """Sum of each run of values at its last place, and 0 elsewhere, float64 [n, k]."""
    starts = np.ones(values.shape, bool)
    starts[:, 1:] = is_last[:, :-1]
    # Rows are joined: every row begins a run, so that no run crosses two rows.
    sums = np.zeros(values.shape)
    sums[is_last] = np.add.reduceat(values.ravel(), np.flatnonzero(starts.ravel()))
    return sums


def _weights(neighbors: RankedNeighbors, temperature: float) -> np.ndarray:
    """exp(s_j / τ) / Σ exp(s / τ), float64 [n, k]; 0 for neighbours that are missing."""
    scores = np.where(neighbors.tokens < 0, -np.inf, neighbors.scores).astype(np.float64)
    best = scores.max(axis=1, keepdims=True)
    shifted = scores - np.where(np.isneginf(best), 0, best)
    weights = np.exp(shifted / temperature)
    total = weights.sum(axis=1, keepdims=True)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)


def best_temperature(neighbors: RankedNeighbors, targets: Integer[np.ndarray, " n"]) -> float:
    """τ at which q gives the targets the largest probability; no position depends on it whose
    neighbours lack the target.

    Rounded to four digits, so that a user can type the number again.
    """
    holds_target = neighbors.tokens == targets[:, None]
    is_reachable = holds_target.any(1)
    if not is_reachable.any():
        return 1.0
    holds_target = holds_target[is_reachable]
    reachable = RankedNeighbors(neighbors.tokens[is_reachable], neighbors.scores[is_reachable])
    spread = _spread(reachable)

    # no logarithm of 0: a share may underflow at a small temperature
    tiny = np.finfo(np.float64).tiny
    temperatures = [float(f"{fraction * spread:.4g}") for fraction in FRACTIONS]
    nats = []
    for temperature in temperatures:
        shares = (_weights(reachable, temperature) * holds_target).sum(1)
        nats.append(-np.log(np.maximum(shares, tiny)).mean())
    return temperatures[int(np.argmin(nats))]


def _spread(neighbors: RankedNeighbors) -> float:
    """Median difference between the best and the last score; 1 if it is not positive."""
    present = neighbors.tokens >= 0
    worst = np.where(present, neighbors.scores, np.inf).min(axis=1)
    best = np.where(present, neighbors.scores, -np.inf).max(axis=1)
    median = float(np.median(best - worst))
    return median if median > 0 else 1.0


class NeighborReader:
    """Reads neighbours of the training split from an artifact, the k best of each token."""

    def __init__(self, neighbors: Artifact, k: int, values: np.ndarray) -> None:
        """Args:
        values: the token of each row of the datastore, integers [N]; in memory or mapped.
        """
        group = neighbors.zarr("neighbors.zarr")
        self._ids = group[f"{TRAIN}/ids"]
        self._distances = group[f"{TRAIN}/distances"]
        self._is_distance = neighbors.find("index").config["metric"] == "l2"
        self._k = k
        self._values = values

    def __len__(self) -> int:
        return int(self._ids.shape[0])

    def read(self, start: int, stop: int) -> RankedNeighbors:
        """Neighbours of tokens [start, stop)."""
        ids = np.asarray(self._ids[start:stop])[:, : self._k]
        distances = np.asarray(self._distances[start:stop])[:, : self._k]
        tokens = np.where(ids >= 0, self._values[np.maximum(ids, 0)], -1)
        return RankedNeighbors(tokens, -distances if self._is_distance else distances)


def tuned_temperature(neighbors: Artifact, k: int) -> float:
    """τ at which stored neighbours predict a sample of the training split best."""
    datastore = neighbors.find("datastore").zarr("datastore.zarr")
    values = np.asarray(datastore["values"][:])
    reader = NeighborReader(neighbors, k, values)
    ids = neighbors.input("queries").zarr("tokens.zarr")[f"{TRAIN}/ids"]

    parts = []
    targets = []
    for start, stop in sampled_blocks(len(reader)):
        parts.append(reader.read(start, stop))
        targets.append(np.asarray(ids[start:stop]).astype(np.int64))

    tokens = np.concatenate([part.tokens for part in parts])
    scores = np.concatenate([part.scores for part in parts])
    return best_temperature(RankedNeighbors(tokens, scores), np.concatenate(targets))


def sampled_blocks(total: int) -> Iterator[tuple[int, int]]:
    """Blocks [start, stop) of positions, spread evenly; all of a short split.

    >>> list(sampled_blocks(7))
    [(0, 7)]
    >>> len(list(sampled_blocks(100_000)))
    8
    """
    if total <= TUNED_ON:
        yield 0, total
        return
    size = TUNED_ON // BLOCKS
    for start in np.linspace(0, total - size, BLOCKS).astype(int).tolist():
        yield start, start + size
