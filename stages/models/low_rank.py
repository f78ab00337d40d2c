"""Low-rank factors next to the matrices of a model's blocks (LoRA), computed by the package peft.

A product with W becomes one with W + 2 B A. B [out, r] begins at 0, which leaves the model's
function unchanged, and A [r, in] at random.

Source: Hu et al. 2022 (LoRA, arXiv:2106.09685), equation 3, with alpha = 2 r.
"""

import warnings
from collections.abc import Iterator
from typing import Any

from torch import nn

from stages.errors import UsageError, first_line
from stages.models.language_model import LanguageModel

SCALE = 2
"""alpha / r."""
FACTORS = "lora_"
"""Part of peft's names of both factors."""


def insert_factors(model: LanguageModel, rank: int, option: str) -> None:
    """Add A and B to every matrix of a model's blocks; there, only A and B have gradients.

    Args:
        option: what the user typed for it, for messages.
    Raises: UsageError if peft does not support the model, or is not installed.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise UsageError(f"{option} needs the package peft: pip install 'memlm[hf]'.") from None
    inside = blocks(model)
    names = [name for name, _ in products(inside)]
    if not names:
        raise UsageError(
            f"{option} does not fit this model: a {model.config.backbone} has no matrix that peft "
            "knows. Leave it out."
        )
    settings = LoraConfig(r=rank, lora_alpha=SCALE * rank, target_modules=names)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the transposed matrices of GPT-2
            inject_adapter_in_model(settings, inside)
    except ValueError as error:
        raise UsageError(
            f"{option} does not fit this model ({first_line(error)}): leave it out."
        ) from None


def factor_numbers(model: LanguageModel, rank: int) -> int:
    """Number of parameters in the factors."""
    return sum(rank * sum(layer.weight.shape) for _, layer in products(blocks(model)))


def blocks(model: LanguageModel) -> Any:
    """An imported model's blocks, or the whole backbone of any other."""
    return getattr(model.backbone, "model", model.backbone)


def products(inside: nn.Module) -> Iterator[tuple[str, Any]]:
    """The linear layers; those of GPT-2 are transformers' own `Conv1D`."""
    for name, layer in inside.named_modules():
        if isinstance(layer, nn.Linear) or type(layer).__name__ == "Conv1D":
            yield name, layer
