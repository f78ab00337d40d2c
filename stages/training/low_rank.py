"""Training few numbers beside those of a model, which stay as they are (LoRA), by the package peft.

A product with W becomes one with W + 2 B A; B [out, r] begins at 0, so that the model begins as it was, and A [r, in]
at random. The products themselves are peft's; what is written of the model is W + 2 B A, a model like any other.
A method may add tokens to the vocabulary (`<ans>`, one for each task), whose rows no model to begin from learnt.
These rows learn beside the factors; all others stay.

Source: Hu et al. 2022 (LoRA, arXiv:2106.09685), equation 3, with alpha = 2 r.
"""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

from stages.errors import UsageError, first_line
from stages.methods.method import ParameterGroup
from stages.models.head_settings import LanguageSettings
from stages.models.language_model import ADDED_WEIGHTS, LanguageModel
from stages.models.vocabulary import JoinedRows

SCALE = 2
"""alpha / r."""
OWN, ADDED = ".base_layer", "lora_"
"""Names in peft of a layer's own W, and of both factors."""
WITH_ROWS = "vocabulary.parametrizations."
OLD_ROWS, NEW_ROWS = ".original0", ".original1"
"""Names in torch of a weight of the vocabulary in two parts."""


def add_factors(model: LanguageModel, rank: int) -> None:
    """Put A and B beside every matrix of a model's blocks, and set the rows of added tokens apart.

    In the blocks A and B alone have gradients.

    Raises: UsageError for a model that peft has no factors for, or without the package.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise UsageError("--lora needs the package peft: pip install 'memlm[hf]'.") from None
    blocks = _blocks(model)
    settings = LoraConfig(r=rank, lora_alpha=SCALE * rank, target_modules=[name for name, _ in _products(blocks)])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the products of GPT-2 are written the other way round
            inject_adapter_in_model(settings, blocks)
    except ValueError as error:
        raise UsageError(f"--lora does not fit this model ({first_line(error)}): leave it out.") from None
    for name in _with_added_rows(model):
        register_parametrization(model.vocabulary, name, JoinedRows(_first_added(model)))


def _first_added(model: LanguageModel) -> int:
    """The first token whose row learns, or as many as there are."""
    head, types = model.config.head, int(model.config.vocab_size or 0)
    return head.first if isinstance(head, LanguageSettings) and head.learns_rows else types


def _with_added_rows(model: LanguageModel) -> list[str]:
    """Names of the vocabulary's weights if some of their rows are of added tokens."""
    weights = dict(model.vocabulary.named_parameters(recurse=False))
    return [name for name, weight in weights.items() if len(weight) > _first_added(model)]


def factors_alone(groups: Sequence[ParameterGroup], model: LanguageModel) -> list[ParameterGroup]:
    """The groups without what was the model's before factors were added; what a method added, stays.

    Raises: UsageError if the factors are in no group.
    """
    weights = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    learnt = {
        id(weight)
        for name, weight in weights
        if ADDED in name or name.startswith(ADDED_WEIGHTS) or (name.startswith(WITH_ROWS) and name.endswith(NEW_ROWS))
    }
    left = [group._replace(parameters=[one for one in group.parameters if id(one) in learnt]) for group in groups]
    if sum(len(group.parameters) for group in left) < len(learnt):
        raise UsageError("The method leaves the model as it is: --lora would learn nothing, leave it out.")
    return left


def own_parameters(model: nn.Module) -> int:
    """Numbers of the model without factors."""
    return sum(weight.numel() for name, weight in model.named_parameters() if ADDED not in name)


@torch.no_grad()
def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    """All weights and buffers by the names that they have without factors, which are taken into them."""
    layers = {name: layer for name, layer in model.named_modules() if hasattr(layer, "get_delta_weight")}
    weights = {name.replace(OWN, ""): weight for name, weight in model.state_dict().items() if ADDED not in name}
    for name in [name for name in weights if name.startswith(WITH_ROWS) and name.endswith(OLD_ROWS)]:
        plain = f"vocabulary.{name.removeprefix(WITH_ROWS).removesuffix(OLD_ROWS)}"
        new = weights.pop(f"{name.removesuffix(OLD_ROWS)}{NEW_ROWS}")
        weights[plain] = torch.cat((weights.pop(name), new))
    for name, layer in layers.items():
        for adapter in layer.active_adapters:
            # A sum, not in place: training may go on with W as it was.
            weights[f"{name}.weight"] = weights[f"{name}.weight"] + layer.get_delta_weight(adapter)
    return weights


def added_numbers(model: LanguageModel, rank: int) -> int:
    """How many numbers the factors and the rows of added tokens have."""
    factors = sum(rank * sum(layer.weight.shape) for _, layer in _products(_blocks(model)))
    weights, first = dict(model.vocabulary.named_parameters(recurse=False)), _first_added(model)
    return factors + sum(weights[name][first:].numel() for name in _with_added_rows(model))


def _blocks(model: LanguageModel) -> Any:
    """An imported model's blocks, or the whole backbone of one that began here."""
    return getattr(model.backbone, "model", model.backbone)


def _products(blocks: nn.Module) -> Iterator[tuple[str, Any]]:
    """The layers that multiply with a matrix; GPT-2's are transformers' own `Conv1D`, which are linear too."""
    for name, layer in blocks.named_modules():
        if isinstance(layer, nn.Linear) or type(layer).__name__ == "Conv1D":
            yield name, layer
