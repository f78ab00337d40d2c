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
    settings = transformers.AutoConfig.for_model(**architecture)
    with torch.device("cpu"), no_init_weights():
        return getattr(transformers, kind).from_config(settings, dtype=torch.float32, trust_remote_code=False)


def blocks_of(model: Any) -> nn.Module:
    """The part of a model between its embeddings and its head, if it has one; the embeddings are taken out."""
    blocks: Any = model.base_model
    blocks.set_input_embeddings(nn.Identity())
    found: nn.Module = blocks
    return found
