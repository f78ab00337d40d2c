"""A model of transformers as a backbone: windows of embeddings in, f and g out."""

from typing import Any

import torch
from torch import Tensor, nn

from stages.errors import UsageError
from stages.models.backbone import Backbone, Encoding, State
from stages.models.backbones.huggingface.config import HuggingFaceConfig


class HuggingFace(Backbone):
    """The blocks of an imported model, without its embeddings and its softmax, which are the vocabulary's.

    Windows are read without padding, mask or cache, so that every one is exactly causal. Weights begin undefined:
    they are loaded.
    """

    def __init__(self, config: HuggingFaceConfig) -> None:
        super().__init__()
        self.prefix = config.prefix
        self.last_ffn, self.input_scale = config.last_ffn, config.input_scale
        self.model = blocks_of(causal_model(config.architecture))

    def forward(self, embedded: Tensor, state: State = None) -> Encoding:
        """Embeddings [B, L, d] -> hidden [B, L, d] (f), ffn_input [B, L, d] (g), no state."""
        inputs: list[Tensor] = []
        embedded = embedded if self.input_scale == 1 else self.input_scale * embedded
        hooks = [] if self.last_ffn is None else [self._watch(self.last_ffn, inputs)]
        try:
            hidden: Tensor = self.model(inputs_embeds=embedded, use_cache=False, return_dict=True)[0]
        finally:
            for hook in hooks:
                hook.remove()
        return Encoding(hidden, inputs[0].reshape(hidden.shape) if inputs else None)

    def _watch(self, name: str, inputs: list[Tensor]) -> Any:
        """Have what enters a module added to a list."""
        return self.model.get_submodule(name).register_forward_pre_hook(
            lambda _, arguments: inputs.append(arguments[0])
        )


def causal_model(architecture: dict[str, Any]) -> Any:
    """A model of such settings, weights undefined, buffers (rotations, masks) as they are to be.

    Raises: UsageError without transformers.
    """
    try:
        from transformers import AutoConfig, AutoModelForCausalLM
        from transformers.initialization import no_init_weights
        from transformers.utils import logging
    except ImportError:
        raise UsageError("Imported models need the package transformers: pip install 'memlm[hf]'.") from None
    logging.set_verbosity_error()
    settings = AutoConfig.for_model(**architecture)
    with torch.device("cpu"), no_init_weights():
        return AutoModelForCausalLM.from_config(settings, dtype=torch.float32, trust_remote_code=False)


def blocks_of(causal: Any) -> nn.Module:
    """The part of a causal model between its embeddings and its softmax; the embeddings are taken out."""
    blocks: Any = causal.base_model
    blocks.set_input_embeddings(nn.Identity())
    found: nn.Module = blocks
    return found
