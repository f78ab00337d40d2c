"""Keys of documents by a network that learns nothing."""

import numpy as np
import torch

from stages.examples.documents import Documents
from stages.examples.examples import BATCH_TOKENS
from stages.models.head_settings import Pool
from stages.models.heads import pooled
from stages.models.language_model import LanguageModel


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
