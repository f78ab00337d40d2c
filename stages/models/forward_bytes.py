"""What a model's forward pass holds in memory, by the shapes of its tensors: it runs on the meta device.

Of a computation on a GPU: attention without a mask keeps what fused kernels keep (Dao et al. 2022, arXiv:2205.14135,
section 3.1), and of `bf16` products are rounded as autocast rounds them.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from stages.models.config import BackboneConfig
from stages.models.language_model import LanguageModel, Unfilled
from stages.models.tensor_bytes import TensorBytes

PRODUCTS = frozenset(("linear", "matmul", "__matmul__", "mm", "bmm", "addmm", "baddbmm", "einsum"))
EXACT = frozenset(
    ("layer_norm", "rms_norm", "softmax", "log_softmax", "logsumexp", "exp", "pow", "sum", "cumsum", "norm")
)
"""What autocast leaves, or puts, in float32."""
ATTENTION = "scaled_dot_product_attention"
LSTM_NUMBERS = 6
"""Of each position and unit of an LSTM's layer that gradients need: four gates, the cell, the output."""
NUMBER = 4
"""Bytes, in float32."""
SEGMENTS_READ = 4
"""Of a stream, at the most, until what is carried is as long as it gets."""


class ForwardBytes(NamedTuple):
    """Bytes beside the weights."""

    kept: int
    """After it: representations, and where it learns what gradients need."""
    peak: int
    """At once."""


def forward_bytes(
    config: BackboneConfig, batch: int, length: int, precision: str, *, learning: bool
) -> ForwardBytes | None:
    """Of one forward pass of embeddings [batch, length, d] through the backbone; None where shapes do not tell.

    Args:
        config: with a vocabulary of known size.
        precision: fp32 or bf16.
        learning: with dropout, for gradients.
    """
    with torch.device("meta"), Unfilled():
        model = LanguageModel(config)
    model.train(learning)
    lstm = next((part for part in model.modules() if isinstance(part, nn.LSTM)), None)
    if lstm is not None:
        return _of_lstm(lstm, batch * length, learning)
    width, state, counted = config.width, None, TensorBytes()
    try:
        for _ in range(SEGMENTS_READ if config.carries_state else 1):
            counted = TensorBytes()
            with ExitStack() as stack:
                for one in (torch.set_grad_enabled(learning), counted, _AsOnGpu(precision)):
                    stack.enter_context(one)
                embedded = torch.empty(batch, length, width, device="meta", requires_grad=learning)
                encoding = model.backbone(embedded, state)
            state = None if encoding.state is None else tuple(one.detach() for one in encoding.state)
            kept = counted.held
            del encoding
    except (RuntimeError, NotImplementedError, TypeError, AssertionError):  # values decide what is computed
        return None
    return ForwardBytes(kept, counted.peak)


class _AsOnGpu(TorchFunctionMode):
    """Autocast, which the meta device has not, and attention that keeps no scores."""

    def __init__(self, precision: str) -> None:
        super().__init__()
        self._rounds = precision == "bf16"
        self._rounded: dict[int, Tensor] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given, name = dict(kwargs or {}), func.__name__
        if self._rounds and (name in PRODUCTS or name == ATTENTION):
            args, given = [self._low(one) for one in args], {n: self._low(one) for n, one in given.items()}
        elif self._rounds and name in EXACT:
            args = [_high(one) for one in args]
        if name == ATTENTION and given.get("attn_mask") is None and len(args) == 3:
            return _Attention.apply(*args)  # type: ignore[no-untyped-call]
        return func(*args, **given)

    def _low(self, one: Any) -> Any:
        """In bfloat16; of a weight there is one such copy as long as autocast lasts."""
        if not _is_float32(one):
            return one
        if not isinstance(one, nn.Parameter):
            return one.to(torch.bfloat16)
        if id(one) not in self._rounded:
            self._rounded[id(one)] = one.to(torch.bfloat16)
        return self._rounded[id(one)]


def _high(one: Any) -> Any:
    return one.float() if isinstance(one, Tensor) and one.dtype == torch.bfloat16 else one


def _is_float32(one: Any) -> bool:
    return isinstance(one, Tensor) and one.dtype == torch.float32


class _Attention(torch.autograd.Function):
    """What fused attention keeps: queries, keys, values, outputs, and a number a query."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        found = queries.new_empty(*queries.shape[:-1], values.shape[-1])
        ctx.save_for_backward(queries, keys, values, found, queries.new_empty(queries.shape[:-1], dtype=torch.float32))
        return found


def _of_lstm(lstm: nn.LSTM, positions: int, learning: bool) -> ForwardBytes:
    """By arithmetic: torch has none on the meta device. In float32, embeddings and outputs with what drops of them."""
    outside = (2 * NUMBER + 2 * (NUMBER + 1)) * positions * lstm.hidden_size
    gates = NUMBER * LSTM_NUMBERS * positions * lstm.hidden_size
    return (
        ForwardBytes(outside + lstm.num_layers * gates, outside + lstm.num_layers * gates)
        if learning
        else (ForwardBytes(outside // 2, outside + gates))
    )
