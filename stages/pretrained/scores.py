"""Scores of a model of transformers beside those of the same model in memlm: checked, not believed."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from stages.errors import DataError
from stages.models.backbone import Inputs
from stages.models.config import BackboneConfig
from stages.models.language_model import LanguageModel
from stages.pretrained.location import Location

TOLERANCE = 1e-3
"""Nats by which log-probabilities may differ from transformers' own, summed in another order."""
PROBE = (2, 12)
"""Windows and inputs that both are compared on."""
LOUD = 100.0
"""Largest score on the probe once hidden states are multiplied: a cap that memlm does not know shows there."""


class Scored(NamedTuple):
    """Scores of a probe by transformers: tokens [B, L], the factor of hidden states, log-probabilities."""

    tokens: Tensor
    factor: float
    log_probs: Tensor


def scores_of(causal: Any) -> list[Scored]:
    """A probe as it is, and with hidden states so large that every bend of the scores shows."""
    tokens = _probe(causal)
    return [_scored(causal, tokens, factor) for factor in (1.0, _loud(causal, tokens))]


def reads_ahead(causal: Any) -> bool:
    """Whether the score of a token depends on those behind it, as in an encoder, whose perplexity means nothing."""
    tokens = _probe(causal)
    others = tokens.clone()
    others[:, -1] = tokens[:, 0]
    factor = _loud(causal, tokens)
    before, after = (_scored(causal, each, factor).log_probs[:, :-1] for each in (tokens, others))
    return not bool((before - after).abs().max() < TOLERANCE)


def _probe(causal: Any) -> Tensor:
    types = causal.get_input_embeddings().num_embeddings
    return torch.randint(types, PROBE, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def _loud(causal: Any, tokens: Tensor) -> float:
    """Factor that makes the largest score of a probe `LOUD`, as long as nothing bends it."""
    return LOUD / max(float(causal(tokens).logits.abs().max()), 1e-6)


@torch.no_grad()
def _scored(causal: Any, tokens: Tensor, factor: float) -> Scored:
    head = causal.get_output_embeddings()
    hook = head.register_forward_pre_hook(lambda _, arguments: (factor * arguments[0],))
    try:
        return Scored(tokens, factor, causal(tokens).logits.log_softmax(-1))
    finally:
        hook.remove()


@torch.no_grad()
def largest_difference(model: LanguageModel, wanted: list[Scored]) -> float:
    """Nats between log-probabilities of a model, read without its prefix, and those of transformers; nan counts."""
    differences = []
    for tokens, factor, log_probs in wanted:
        hidden = factor * model.backbone(Inputs(model.vocabulary.embed(tokens))).hidden.flatten(0, 1)
        differences.append((model.log_probs(hidden) - log_probs.flatten(0, 1)).abs().max())
    return float(torch.stack(differences).max())


def as_stored(config: BackboneConfig, weights: dict[str, Tensor]) -> LanguageModel:
    """The model that would be stored, in float32, to be compared with that of transformers."""
    model = LanguageModel(config)
    model.load_state_dict(weights, assign=True)
    return model.float().eval()


def require_same(location: Location, what: str, difference: float) -> None:
    """Raises: DataError for `what` that differs: anything that is left out here would change every number after."""
    if not difference < TOLERANCE:
        raise DataError(
            f"{location.spec} computes {what} in a way that memlm does not know: they differ by {difference:.2g} from "
            "those of transformers. It cannot be imported."
        )
