"""Encoder-decoder Transformer, pre-norm: the decoder attends to its own past and to the encoded
source.

Source: Vaswani et al. 2017 (arXiv:1706.03762). Norms are before each layer (arXiv:2002.04745),
which needs no long warm-up, and at the end of both stacks.
"""

from torch import Tensor, nn

from stages.models.backbone import Backbone, Encoding, Inputs, ReadsSource
from stages.models.backbones.window_configs import EncoderDecoderConfig
from stages.models.layers import FEED_FORWARD
from stages.models.layers.dropout import Dropout
from stages.models.layers.sinusoids import sinusoids
from stages.models.layers.stacks import Attention, DecoderBlock, EncoderBlock, Heads


class EncoderDecoder(Backbone, ReadsSource):
    """Embeddings of a target and of its source -> (f, g).

    A target can be read together with its source, or in pieces from a state that `begin` made, with
    the same results. The state is `block1.source.keys`, …, [B, heads, S, d_head], `source_mask`
    bool [B, S], and the target so far:
    `block1.past.keys`, …, [B, heads, t, d_head]. Rows are the first dimension of all tensors.
    """

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        self.width = config.width
        self.scale = config.width**0.5
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(
            EncoderBlock(config, config.encoder_layers) for _ in range(config.encoder_layers)
        )
        self.encoder_norm = nn.LayerNorm(config.width)
        self.blocks = nn.ModuleList()
        for number in range(1, config.layers + 1):
            settings = config.layer_in("feed_forward", number)
            feed_forward = FEED_FORWARD.load(settings.name)(config, settings)
            self.blocks.append(DecoderBlock(config, config.layers, feed_forward))
        self.norm = nn.LayerNorm(config.width)

    def begin(self, source: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
        x = self._placed(source, 0)
        # for scores [B, heads, queries, keys]
        key_mask = None if mask is None else mask[:, None, None, :]
        for block in self.encoder:
            x = block(x, key_mask)
        encoded = self.encoder_norm(x)

        # keys and values of the source do not change while the target is read
        state = {} if mask is None else {"source_mask": mask}
        for number, block in enumerate(self.blocks, 1):
            source_attention: Attention = block.source_attention  # type: ignore[assignment]
            heads = source_attention.of(encoded)
            state |= heads.named(f"block{number}.source")
        return state

    def read(self, inputs: Inputs) -> Encoding:
        """Embeddings [B, L, d] -> hidden [B, L, d] (f), ffn_input [B, L, d] (g), and the state if
        one was given.
        """
        state = self.begun(inputs)
        mask = state.get("source_mask")
        key_mask = None if mask is None else mask[:, None, None, :]
        first = Heads.of(state, "block1.past")
        num_past = 0 if first is None else first.keys.shape[2]
        x = self._placed(inputs.embedded, num_past)

        # the past of every block is replaced; what is read of the source stays
        after = {name: tensor for name, tensor in state.items() if ".past." not in name}
        for number, block in enumerate(self.blocks, 1):
            past = Heads.of(state, f"block{number}.past")
            source = Heads.of(state, f"block{number}.source")
            assert source is not None, "the state is of another model"
            x, ffn_input, heads = block(x, past, source, key_mask)
            after |= heads.named(f"block{number}.past")
        return Encoding(self.norm(x), ffn_input, None if inputs.state is None else after)

    def _placed(self, embedded: Tensor, start: int) -> Tensor:
        """Add the positions from `start` to embeddings."""
        stop = start + embedded.shape[1]
        # Embeddings are initialized at a scale of 1 / √d, because the softmax uses them too;
        # sinusoids have scale 1.
        return self.dropout(
            embedded * self.scale
            + sinusoids(stop, self.width, embedded.device)[start:].to(embedded.dtype)
        )
