"""Episodic memory: documents that are written, drawn at random, or found by distance; all are
numbers of rows.
"""

import numpy as np
from jaxtyping import Float, Int64

KEYS_AT_ONCE = 256
"""Number of keys converted to float64 at a time: so many stay in a processor's cache."""

ITERATIONS = 20
"""Maximum number of iterations of K-means."""


class EpisodicMemory:
    """Distinct documents in the order of writing, each with the index of its task in the stream."""

    def __init__(self) -> None:
        self.rows = np.empty(0, np.int64)
        self.tasks = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    def write(
        self,
        rows: Int64[np.ndarray, " B"],
        task: int,
        probability: float,
        random: np.random.Generator,
        max_count: int | None = None,
    ) -> None:
        """Write each document with a probability; documents that are already there stay as they
        are.

        Args:
            max_count: maximum number of documents of the task; the first ones stay. None: any number.

        >>> memory = EpisodicMemory()
        >>> memory.write(np.array([7, 3]), 0, 1.0, np.random.default_rng(0))
        >>> memory.write(np.array([3, 5]), 1, 1.0, np.random.default_rng(0))
        >>> memory.rows.tolist(), memory.tasks.tolist()
        ([7, 3, 5], [0, 0, 1])
        >>> memory.write(np.array([8, 2, 9]), 1, 1.0, np.random.default_rng(0), max_count=2)
        >>> memory.rows.tolist()
        [7, 3, 5, 8]
        """
        is_drawn = random.random(len(rows)) < probability
        chosen = rows[is_drawn & ~np.isin(rows, self.rows)]
        # An update that spans two epochs may read a document twice.
        _, first_indices = np.unique(chosen, return_index=True)
        chosen = chosen[np.sort(first_indices)]
        if max_count is not None:
            room = max_count - np.count_nonzero(self.tasks == task)
            chosen = chosen[: max(0, room)]

        self.rows = np.concatenate((self.rows, chosen))
        self.tasks = np.concatenate((self.tasks, np.full(len(chosen), task)))

    def draw(self, count: int, random: np.random.Generator) -> np.ndarray:
        """Draw `count` distinct documents uniformly; all of them if there are fewer."""
        return random.choice(self.rows, min(count, len(self.rows)), replace=False)


def draws_due(before: int, after: int, every: int) -> int:
    """Number of draws due while the number of examples read rises from `before` to `after`, one for
    each `every`.

    >>> [draws_due(read, read + 16, every=40) for read in (0, 16, 32, 48, 64)]
    [0, 0, 1, 0, 1]
    """
    return after // every - before // every


def squared_distances(
    query: Float[np.ndarray, " d"], keys: Float[np.ndarray, "M d"]
) -> Float[np.ndarray, " M"]:
    """Squared Euclidean distances in float64, from differences, so that small distances keep their
    digits.

    >>> squared_distances(np.array([0.0, 1.0]), np.array([[3.0, 1.0], [0.0, 0.0]]))
    array([9., 1.])
    """
    distances = np.zeros(len(keys))
    for start in range(0, len(keys), KEYS_AT_ONCE):
        part = slice(start, start + KEYS_AT_ONCE)
        differences = keys[part].astype(np.float64) - query
        distances[part] = (differences**2).sum(1)
    return distances


def nearest(distances: Float[np.ndarray, " M"], k: int) -> Int64[np.ndarray, " k"]:
    """Indices of the k smallest distances, the nearest first; ties by index. All of them if there
    are fewer.

    >>> nearest(np.array([2.0, 1.0, 1.0]), 2)
    array([1, 2])
    """
    return np.argsort(distances, kind="stable")[:k]


def representatives(
    points: Float[np.ndarray, "n d"], count: int, random: np.random.Generator
) -> Int64[np.ndarray, " c"]:
    """Sorted indices of the points that are nearest to the centres of K-means, without repeats.

    The initial centres are points drawn at random. There are at most 20 iterations. A centre
    without points stays. Ties go to the smaller index. If there are at most `count` points, all are
    returned.

    >>> points = np.array([[0.0], [1.0], [2.0], [9.0], [10.0]])
    >>> representatives(points, 2, np.random.default_rng(0))
    array([1, 3])
    """
    if count >= len(points):
        return np.arange(len(points))

    centres = points[random.choice(len(points), count, replace=False)]
    for _ in range(ITERATIONS):
        moved = _means(points, centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    # Two centres may have the same nearest point.
    return np.unique(_distances(points, centres).argmin(0))


def _means(
    points: Float[np.ndarray, "n d"], centres: Float[np.ndarray, "c d"]
) -> Float[np.ndarray, "c d"]:
    """Mean of the points that are nearest to each centre; the centre itself if there are none."""
    clusters = _distances(points, centres).argmin(1)
    means = []
    for cluster, centre in enumerate(centres):
        members = points[clusters == cluster]
        means.append(members.mean(0) if len(members) else centre)
    return np.stack(means)


def _distances(
    points: Float[np.ndarray, "n d"], centres: Float[np.ndarray, "c d"]
) -> Float[np.ndarray, "n c"]:
    """Squared Euclidean distances."""
    columns = []
    for centre in centres:
        # One centre at a time: all differences at once would be [n, c, d].
        differences = points - centre
        columns.append((differences**2).sum(1))
    return np.stack(columns, 1)
