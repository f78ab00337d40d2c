"""Long short-term memory (Hochreiter and Schmidhuber 1997) with torch's fused kernels."""

import torch
from torch import nn

from stages.models.backbone import Backbone, Encoding, Inputs
from stages.models.backbones.stream_configs import LSTMConfig
from stages.models.layers.dropout import Dropout


class LSTM(Backbone):
    """Embeddings -> f, which is also the only key; carries (h, c) of each layer.

    Dropout is applied to embeddings, between layers, and to the output, but never to recurrent
    connections (Zaremba et al. 2014, arXiv:1409.2329). All is computed in the precision of the
    weights: autocast would run cuDNN's LSTM in float16, which loses gradients of back-propagation
    through time.
    """

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__()
        between = config.dropout if config.layers > 1 else 0.0
        self.lstm = nn.LSTM(
            config.width, config.width, config.layers, batch_first=True, dropout=between
        )
        self.dropout = Dropout(config.dropout)
        if config.initial_range is not None:
            for parameter in self.lstm.parameters():
                nn.init.uniform_(parameter, -config.initial_range, config.initial_range)

    def read(self, inputs: Inputs) -> Encoding:
        """Embeddings [B, L, d] and state -> hidden [B, L, d], no feed-forward input, the state
        after them.

        The state is h and c of each layer, [layers, B, d]; both are 0 at the start of a stream.
        """
        before = None if inputs.state is None else (inputs.state["h"], inputs.state["c"])
        with torch.autocast(inputs.embedded.device.type, enabled=False):
            hidden, (h, c) = self.lstm(
                self.dropout(inputs.embedded).to(self.lstm.weight_ih_l0.dtype), before
            )
        return Encoding(self.dropout(hidden), None, {"h": h, "c": c})
