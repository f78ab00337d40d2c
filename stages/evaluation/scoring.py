"""What a language model alone says about a range of tokens, and the keys that it looks them up with."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stages.evaluation.encode import EncodedBlock
from stages.models.language_model import LanguageModel


@dataclass(frozen=True)
class Scored:
    """n tokens, in order: `targets` int64, `log_p` of each and `log_z` float32, all [n], in nats.

    `keys`, if they were asked for: float32 [n, d], rounded to the dtype of the datastore.
    """

    targets: Tensor
    log_p: Tensor
    log_z: Tensor
    keys: np.ndarray | None


def score_blocks(model: LanguageModel, blocks: Iterable[EncodedBlock], key: str | None, dtype: str) -> Scored:
    """Score encoded tokens with the model that encoded them.

    Args:
        key: representation to keep as search keys (`hidden`, `ffn-input`); None: none.
        dtype: of the stored keys that they will be compared with.
    """
    targets, log_p, log_z, keys = [], [], [], []
    for block in blocks:
        scored = model.log_prob(block.hidden, block.targets)
        targets.append(block.targets)
        log_p.append(scored[0])
        log_z.append(scored[1])
        if key is not None:
            keys.append(search_keys(block, key, dtype))
    kept = np.concatenate(keys) if keys else None
    return Scored(torch.cat(targets), torch.cat(log_p), torch.cat(log_z), kept)


def search_keys(block: EncodedBlock, key: str, dtype: str) -> np.ndarray:
    """Keys of a block as a search takes them: rounded as they are stored, then float32, [n, d]."""
    return block.key(key).to(getattr(torch, dtype)).float().cpu().numpy()
