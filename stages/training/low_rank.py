"""Training of low-rank factors (LoRA) next to a model's frozen weights; see
`stages.models.low_rank`.

The saved model has the merged weights W + 2 B A. A method may add tokens to the vocabulary
(`<ans>`, one for each task), whose rows the initial model never learnt. These rows are trained with
the factors; all others are frozen.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

from stages.errors import UsageError
from stages.methods.method import ParameterGroup
from stages.models.language_model import ADDED_WEIGHTS, LanguageModel
from stages.models.low_rank import FACTORS, factor_numbers, insert_factors
from stages.models.vocabulary import JoinedRows

BASE_LAYER = ".base_layer"
"""Part of peft's name of a layer's own W."""
WITH_ROWS = "vocabulary.parametrizations."
OLD_ROWS = ".original0"
NEW_ROWS = ".original1"
"""torch's names of a vocabulary weight in two parts."""


def add_factors(model: LanguageModel, rank: int) -> None:
    """Add A and B to every matrix of a model's blocks, and separate the rows of added tokens.

    In the blocks only A and B have gradients.

    Raises: UsageError if peft does not support the model, or is not installed.
    """
    insert_factors(model, rank, "--lora")
    for name in _with_added_rows(model):
        register_parametrization(model.vocabulary, name, JoinedRows(_first_added(model)))


def _first_added(model: LanguageModel) -> int:
    """The first token with a trained row; the vocabulary size if there is none."""
    head = model.config.head
    types = int(model.config.vocab_size or 0)
    if head is None or not head.writes_answers or not head.learns_rows:
        return types
    return int(head.first)


def _with_added_rows(model: LanguageModel) -> list[str]:
    """Names of the vocabulary's weights, if some of their rows belong to added tokens."""
    weights = dict(model.vocabulary.named_parameters(recurse=False))
    return [name for name, weight in weights.items() if len(weight) > _first_added(model)]


def factors_alone(groups: Sequence[ParameterGroup], model: LanguageModel) -> list[ParameterGroup]:
    """The groups without the model's original parameters; parameters that a method added stay.

    Raises: UsageError if the factors are in no group.
    """
    weights = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    learnt = {
        id(weight)
        for name, weight in weights
        if FACTORS in name
        or name.startswith(ADDED_WEIGHTS)
        or (name.startswith(WITH_ROWS) and name.endswith(NEW_ROWS))
    }
    remaining = []
    for group in groups:
        trained = [parameter for parameter in group.parameters if id(parameter) in learnt]
        remaining.append(group._replace(parameters=trained))
    if sum(len(group.parameters) for group in remaining) < len(learnt):
        raise UsageError(
            "The method leaves the model as it is: --lora would learn nothing, leave it out."
        )
    return remaining


def own_parameters(model: nn.Module) -> int:
    """Number of parameters of the model without factors."""
    return sum(weight.numel() for name, weight in model.named_parameters() if FACTORS not in name)


@torch.no_grad()
def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    """All weights and buffers, with factors merged, under the names without factors."""
    layers = {
        name: layer for name, layer in model.named_modules() if hasattr(layer, "get_delta_weight")
    }
    weights = {
        name.replace(BASE_LAYER, ""): weight
        for name, weight in model.state_dict().items()
        if FACTORS not in name
    }
    for name in [
        name for name in weights if name.startswith(WITH_ROWS) and name.endswith(OLD_ROWS)
    ]:
        plain = f"vocabulary.{name.removeprefix(WITH_ROWS).removesuffix(OLD_ROWS)}"
        new = weights.pop(f"{name.removesuffix(OLD_ROWS)}{NEW_ROWS}")
        weights[plain] = torch.cat((weights.pop(name), new))
    for name, layer in layers.items():
        for adapter in layer.active_adapters:
            # The sum is not in place: training may continue with the original W.
            weights[f"{name}.weight"] = weights[f"{name}.weight"] + layer.get_delta_weight(adapter)
    return weights


def added_numbers(model: LanguageModel, rank: int) -> int:
    """Number of parameters in the factors and the rows of added tokens."""
    weights = dict(model.vocabulary.named_parameters(recurse=False))
    first = _first_added(model)
    return factor_numbers(model, rank) + sum(
        weights[name][first:].numel() for name in _with_added_rows(model)
    )
