"""BM25's formulae: what a term is worth, and what its repetition adds."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Scoring:
    """A variant of BM25: score(q, d) = Σ over terms t of q, with repetition, of idf(t) · saturation(t in d)."""

    k1: float
    b: float
    gain: float
    """Limit of the saturation as a term is repeated; it orders nothing."""
    idf: Callable[[np.ndarray, int], np.ndarray]
    """Documents that hold each term, all at least 1, and documents in all -> weight of each term, float64."""
    floor: float
    """The score that a match must exceed."""

    def saturation(self, tf: np.ndarray, length: np.ndarray) -> np.ndarray:
        """Contribution of a term to a document's score, divided by its idf.

        Args:
            tf: how often the term is in the document, at least 1.
            length: length of the document over the mean length.
        """
        return self.gain * tf / (tf + self.k1 * (1 - self.b + self.b * length))


def lucene_idf(holding: np.ndarray, documents: int) -> np.ndarray:
    """ln(1 + (N - n + 1/2) / (n + 1/2)), never negative."""
    return np.log1p((documents - holding + 0.5) / (holding + 0.5))


def okapi_idf(holding: np.ndarray, documents: int, epsilon: float = 0.25) -> np.ndarray:
    """ln((N - n + 1/2) / (n + 1/2)); terms in more than half of the documents get `epsilon` of the mean (rank-bm25)."""
    idf = np.log(documents - holding + 0.5) - np.log(holding + 0.5)
    return np.where(idf < 0, epsilon * idf.mean(), idf)


SCORINGS = {
    "lucene": Scoring(k1=0.9, b=0.4, gain=1.0, idf=lucene_idf, floor=0.0),
    "okapi": Scoring(k1=1.5, b=0.75, gain=2.5, idf=okapi_idf, floor=-np.inf),
}
"""`lucene`: Lucene 8 and later with Pyserini's k1 and b, exact lengths; documents that share no term are no matches.
`okapi`: rank-bm25's BM25Okapi, which ranks every document."""
