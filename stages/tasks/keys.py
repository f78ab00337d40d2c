"""Keys of documents by a network that learns nothing, and the rows of memory that are nearest to them."""

import numpy as np
import torch
from jaxtyping import Float, Int64

from stages.examples.documents import Documents
from stages.examples.examples import BATCH_TOKENS
from stages.models.heads.classifier import pooled
from stages.models.heads.classifier_settings import Pool
from stages.models.language_model import LanguageModel

KEYS_AT_ONCE = 4096
"""Keys that are compared with a query at a time: a copy of all in float64 would be twice as large as they are."""


def document_keys(model: LanguageModel, examples: Documents, which: np.ndarray, pool: Pool) -> np.ndarray:
    """The pooled hidden states of some examples [n], float32 [n, d]."""
    size, found = max(1, BATCH_TOKENS // examples.cutting.context), list[np.ndarray]()
    device = next(model.parameters()).device
    with torch.no_grad():
        for start in range(0, len(which), size):
            batch = examples.batch(which[start : start + size]).to(device)
            assert batch.mask is not None
            found.append(pooled(model.read(batch).hidden.float(), batch.mask, pool).cpu().numpy())
    return np.concatenate(found)


def squared_distances(query: Float[np.ndarray, " d"], keys: Float[np.ndarray, "M d"]) -> Float[np.ndarray, " M"]:
    """Squared Euclidean distances, in float64, term by term: near keys lose no digits."""
    parts = (keys[start : start + KEYS_AT_ONCE].astype(np.float64) for start in range(0, len(keys), KEYS_AT_ONCE))
    return np.concatenate([((part - query) ** 2).sum(1) for part in parts] or [np.zeros(0)])


def nearest(distances: Float[np.ndarray, " M"], k: int) -> Int64[np.ndarray, " k"]:
    """Places of the k smallest distances, the nearest first; of equal ones the smaller place. All, if there are fewer.

    >>> nearest(np.array([2.0, 1.0, 1.0]), 2)
    array([1, 2])
    """
    return np.argsort(distances, kind="stable")[:k]
