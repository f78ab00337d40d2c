"""A model of transformers as a backbone: windows of embeddings in, f and g out."""

from typing import Any

from torch import Tensor

from stages.models.backbone import Backbone, Encoding, Inputs
from stages.models.backbones.huggingface_config import HuggingFaceConfig
from stages.models.from_transformers import blocks_of, model_of_settings


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

    def read(self, inputs: Inputs) -> Encoding:
        """Embeddings [B, L, d] -> hidden [B, L, d] (f), ffn_input [B, L, d] (g), no state."""
        ffn_inputs: list[Tensor] = []
        embedded = inputs.embedded if self.input_scale == 1 else self.input_scale * inputs.embedded
        hooks = [] if self.last_ffn is None else [self._watch(self.last_ffn, ffn_inputs)]
        try:
            hidden: Tensor = self.model(inputs_embeds=embedded, use_cache=False, return_dict=True)[0]
        finally:
            for hook in hooks:
                hook.remove()
        return Encoding(hidden, ffn_inputs[0].reshape(hidden.shape) if ffn_inputs else None)

    def _watch(self, name: str, inputs: list[Tensor]) -> Any:
        """Have what enters a module added to a list."""
        return self.model.get_submodule(name).register_forward_pre_hook(
            lambda _, arguments: inputs.append(arguments[0])
        )


def causal_model(architecture: dict[str, Any]) -> Any:
    """A causal model of such settings, as `model_of_settings` makes it."""
    return model_of_settings(architecture, "AutoModelForCausalLM")
