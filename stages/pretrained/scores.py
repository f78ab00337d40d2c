"""Scores of a model of transformers beside those of the same model in memlm: checked, not believed."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from stages.models.language_model import LanguageModel

TOLERANCE = 1e-3
"""Nats by which log-probabilities may differ from transformers' own, summed in another order."""
PROBE = (2, 12)
"""Windows and inputs that both are compared on."""
LOUD = 100.0
"""Largest score on the probe once hidden states are multiplied: a cap that memlm does not know shows there."""


class Scored(NamedTuple):
    """What transformers makes of a probe: tokens [B, L], what hidden states are multiplied by, log-probabilities."""

    tokens: Tensor
    factor: float
    log_probs: Tensor


@torch.no_grad()
def scores_of(causal: Any) -> list[Scored]:
    """A probe as it is, and with hidden states so large that every bend of the scores shows."""
    types = causal.get_input_embeddings().num_embeddings
    tokens = torch.randint(types, PROBE, generator=torch.Generator().manual_seed(0))
    plain = causal(tokens).logits
    factor = LOUD / max(float(plain.abs().max()), 1e-6)

    head = causal.get_output_embeddings()
    hook = head.register_forward_pre_hook(lambda _, arguments: (factor * arguments[0],))
    try:
        loud = causal(tokens).logits
    finally:
        hook.remove()
    return [Scored(tokens, 1.0, plain.log_softmax(-1)), Scored(tokens, factor, loud.log_softmax(-1))]


@torch.no_grad()
def largest_difference(model: LanguageModel, wanted: list[Scored]) -> float:
    """Nats between log-probabilities of a model, read without its prefix, and those of transformers; nan counts."""
    differences = []
    for tokens, factor, log_probs in wanted:
        hidden = factor * model.backbone(model.vocabulary.embed(tokens)).hidden.flatten(0, 1)
        differences.append((model.log_probs(hidden) - log_probs.flatten(0, 1)).abs().max())
    return float(torch.stack(differences).max())
