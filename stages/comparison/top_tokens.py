"""The tokens with the largest values, kept while tokens stream by."""

import numpy as np


class TopTokens:
    """The rows with the largest values above 0; of equal ones, those that came first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.rows = np.empty(0, np.int64)
        self._values = np.empty(0)

    def add(self, start: int, values: np.ndarray) -> None:
        """Look at the values [n] of rows start, start + 1, …"""
        above = np.flatnonzero(values > 0)
        if len(above) > self._most:
            least = np.partition(values[above], -max(self._most, 1))[-max(self._most, 1)]
            above = above[values[above] >= least]
        rows = np.concatenate([self.rows, start + above])
        kept = np.concatenate([self._values, values[above]])
        order = np.argsort(-kept, kind="stable")[: self._most]
        self.rows, self._values = rows[order], kept[order]
