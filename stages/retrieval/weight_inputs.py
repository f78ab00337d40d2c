"""Features for a learned weight: the model's confidence, the token before, the neighbours.

Shapes: n positions, k entries that stand best first.
"""

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torch.nn.functional import pad

from stages.retrieval.retrieved import Retrieved
from stages.retrieval.scored_range import ScoredRange

ENTRIES = 64
"""Best entries that are looked at."""
POSITIONS = 512
"""Looked at together: each pair of their entries is compared."""
RANKS = (2, 4, 8, 16, 32, ENTRIES)
FARTHEST = 20.0
"""Nats below the best from which on an entry is as good as missing."""
CONTEXT = ("log of the largest probability", "entropy", "log of 1 + count of the token before")
"""Features that are known before a memory is searched, all from the model's own distribution but the count in the
datastore."""
NEIGHBORS = (
    "score of the best",
    *(f"log of 1 + distance of entry {rank} from the best" for rank in RANKS),
    *(f"log of the number of tokens among the best {rank}" for rank in RANKS),
    "log of the memory's largest probability",
    "entropy of the memory",
)


def weight_inputs(
    scored_range: ScoredRange, rows: Tensor | slice, retrieved: Retrieved, scale: float, cutoff: int
) -> Float[Tensor, "n f"]:
    """The inputs of `CONTEXT` and `NEIGHBORS` for some rows of a range; 0 of the neighbours where there are none.

    Args:
        retrieved: what these rows read.
        scale, cutoff: the factor of scores and the number of entries that are read.
    """
    assert scored_range.context is not None, "a range that is read with a learned weight knows its contexts"
    scores = torch.cat([part.scores_read(cutoff) for part in retrieved.parts], -1) * scale
    values = torch.cat([part.entries.values.long() for part in retrieved.parts], -1)
    return torch.cat((scored_range.context[rows], neighbor_inputs(scores, values)), -1).double()


def neighbor_inputs(scores: Float[Tensor, "n k"], values: Integer[Tensor, "n k"]) -> Float[Tensor, "n f"]:
    """The inputs of `NEIGHBORS`; scores s/τ in any order, −inf where missing."""
    parts = zip(scores.split(POSITIONS), values.split(POSITIONS), strict=True)
    return torch.cat([_neighbor_inputs(*part) for part in parts])


def _neighbor_inputs(scores: Tensor, values: Tensor) -> Tensor:
    scores, order = scores.sort(dim=-1, descending=True, stable=True)
    scores, values = scores[:, :ENTRIES], values.gather(1, order[:, :ENTRIES])
    missing = ENTRIES - scores.shape[1]
    scores = pad(scores, (0, missing), value=-torch.inf)
    values = pad(values, (0, missing), value=-1)
    present, ranks = ~scores.isneginf(), torch.tensor(RANKS, device=scores.device) - 1
    distances = torch.where(present, scores[:, :1] - scores, FARTHEST).clamp(max=FARTHEST)
    alike = (values[:, :, None] == values[:, None, :]) & present[:, None, :]
    inputs = (
        scores[:, :1],
        distances[:, ranks].log1p(),
        _distinct(alike, present)[:, ranks].log(),
        *_certainty((-distances).exp() * present, alike),
    )
    return torch.where(present[:, :1], torch.cat(inputs, -1), 0.0)


def _distinct(alike: Bool[Tensor, "n k k"], present: Bool[Tensor, "n k"]) -> Tensor:
    """Numbers of tokens among the first 1 to k entries, [n, k]."""
    first = present & ~alike.tril(-1).any(-1)
    return first.cumsum(-1)


def _certainty(weights: Float[Tensor, "n k"], alike: Bool[Tensor, "n k k"]) -> tuple[Tensor, Tensor]:
    """log of the largest probability of a token, and entropy in nats, both [n, 1], of a memory of these entries."""
    shares = weights / weights.sum(-1, keepdim=True)
    tokens = (alike * shares[:, None, :]).sum(-1)
    entropy = -(shares * tokens.clamp(min=torch.finfo(tokens.dtype).tiny).log()).sum(-1, keepdim=True)
    return tokens.amax(-1, keepdim=True).log(), entropy
