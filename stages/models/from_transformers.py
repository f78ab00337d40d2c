"""Models of the package transformers, made from their settings and taken apart."""

from typing import Any

import torch
from torch import nn

from stages.errors import UsageError


def model_of_settings(architecture: dict[str, Any], kind: str) -> Any:
    """A model of such settings, weights undefined, buffers (rotations, masks) as they are to be.

    Args:
        kind: the class of transformers that chooses its own by the settings (`AutoModel`).
    Raises: UsageError without transformers.
    """
    try:
        import transformers
        from transformers.initialization import no_init_weights
        from transformers.utils import logging
    except ImportError:
        raise UsageError("Imported models need the package transformers: pip install 'memlm[hf]'.") from None
    logging.set_verbosity_error()
    settings = transformers.AutoConfig.for_model(**_with_infinities(architecture))
    with torch.device("cpu"), no_init_weights():
        return getattr(transformers, kind).from_config(settings, dtype=torch.float32, trust_remote_code=False)


def _with_infinities(settings: Any) -> Any:
    """Settings read from JSON, with the numbers that JSON lacks, which transformers writes as objects.

    >>> _with_infinities({"time_step_limit": [0.0, {"__float__": "Infinity"}]})
    {'time_step_limit': [0.0, inf]}
    """
    if isinstance(settings, dict):
        if settings.keys() == {"__float__"}:
            return float(settings["__float__"])
        return {name: _with_infinities(value) for name, value in settings.items()}
    return [_with_infinities(value) for value in settings] if isinstance(settings, list) else settings


def blocks_of(model: Any) -> nn.Module:
    """The part of a model between its embeddings and its head, if it has one; the embeddings are taken out."""
    blocks: Any = model.base_model
    blocks.set_input_embeddings(nn.Identity())
    found: nn.Module = blocks
    return found
