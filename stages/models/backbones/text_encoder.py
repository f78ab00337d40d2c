"""An encoder of transformers as a backbone: windows of embeddings in, one vector of each out."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from stages.models.backbone import Backbone, Encoding, Inputs
from stages.models.backbones.text_encoder_config import TextEncoderConfig
from stages.models.from_transformers import blocks_of, model_of_settings


class TextEncoder(Backbone):
    """The blocks of an imported encoder, between the tokens that its tokenizer puts around a text.

    Every input sees all others, so a window makes one row, which knows nothing of the token behind it. Windows are
    read without padding and mask. Weights begin undefined: they are loaded.
    """

    def __init__(self, config: TextEncoderConfig) -> None:
        super().__init__()
        self.pooling, self.normalize = config.pooling, config.normalize
        self.before = nn.Parameter(torch.empty(len(config.before), config.width))
        self.after = nn.Parameter(torch.empty(len(config.after), config.width))
        self.model = encoder_blocks(model_of_settings(config.architecture, "AutoModel"))

    def read(self, inputs: Inputs) -> Encoding:
        """Embeddings [B, L, d] -> hidden [B, 1, d], the pooled hidden states of all inputs, [CLS] and [SEP] among them.

        Source: mean pooling as in Reimers and Gurevych 2019 (Sentence-BERT, arXiv:1908.10084), section 3.
        """
        embedded = inputs.embedded
        before, after = (part.expand(len(embedded), -1, -1) for part in (self.before, self.after))
        hidden = self.model(inputs_embeds=torch.cat((before, embedded, after), 1), return_dict=True).last_hidden_state
        return Encoding(pooled(hidden, self.pooling, self.normalize)[:, None], None)


def pooled(hidden: Tensor, how: Literal["mean", "cls", "max"], unit: bool) -> Tensor:
    """One vector a window, [B, d], of hidden states [B, L, d]; `unit`: made 1 long."""
    match how:
        case "mean":
            vectors = hidden.mean(1)
        case "cls":
            vectors = hidden[:, 0]
        case "max":
            vectors = hidden.amax(1)
    return normalize(vectors, dim=-1) if unit else vectors


def encoder_blocks(model: nn.Module) -> nn.Module:
    """The blocks of an encoder, its embeddings taken out, and the layer above [CLS], which no key reads."""
    blocks = blocks_of(model)
    if getattr(blocks, "pooler", None) is not None:
        blocks.pooler = None  # type: ignore[assignment]
    return blocks
