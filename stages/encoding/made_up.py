"""Keys for what is measured before there are any."""

from collections.abc import Iterator

import numpy as np

from stages.artifacts.arrays import ArrayLayout

SPREAD = 0.5
"""Of what is added to a key that stands there again, beside that of all keys."""


def keys_like(keys: np.ndarray, layout: ArrayLayout) -> Iterator[np.ndarray]:
    """The shards of an array of keys: those given, [n, d], as they are, then again, each moved at random.

    They lie about their originals as keys of like contexts lie about each other; in lists that k-means makes of them,
    some are large and some small. Drawn from one normal distribution, all would be as far from each other.
    """
    deviation = SPREAD * keys.astype(np.float32).std(axis=0)
    generator = np.random.default_rng(0)
    for number in range(layout.shards):
        rows = np.arange(layout.rows(number).start, layout.rows(number).stop)
        again = (rows >= len(keys))[:, None]
        moved = generator.standard_normal((len(rows), keys.shape[1]), np.float32) * deviation
        yield (keys[rows % len(keys)] + again * moved).astype(layout.dtype)
