"""Hashed n-grams: the authors' demonstration with memlm's weights, on streams of tokens."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stages.models.backbones.window_configs import TransformerConfig
from stages.models.layers.hashed_ngrams import EPSILON, HashedNgrams
from stages.models.layers.memory_settings import HashedNgramsSettings
from tests.peers.agreement import Agreement, difference, gradients
from tests.peers.sources import Peer, importable, load, stand_in

PEER = Peer(
    name="Engram",
    address="deepseek-ai/Engram",
    commit="11a020e",
    made_equal="one branch, the gate signed-root, biases 0, norms with 1e-6, their factors in memlm's hash, tokens "
    "hashed as i + 1 with 0 before the stream, no merging of tokens",
    patched="transformers and tokenizers are not loaded: the tokenizer that merges ids is the identity",
)
VOCABULARY = 40
WIDTH = 12
ENTRY_WIDTH = 3
HEADS = 2
KERNEL = 3
STREAMS = 2
LENGTH = 17
BLOCK = 1


class Identity:
    """Stands for the tokenizer that merges ids. It counts the id 0, which is before the stream."""

    def __init__(self, tokenizer_name_or_path: str) -> None:
        self.lookup_table = np.arange(len(self))

    def __len__(self) -> int:
        return VOCABULARY + 1

    def __call__(self, ids: Any) -> np.ndarray:
        return np.asarray(ids)


def comparisons(source: Path) -> Iterator[Agreement]:
    modules = {
        "transformers": stand_in("transformers", AutoTokenizer=None),
        "tokenizers": stand_in("tokenizers", normalizers=None, Regex=None),
    }
    with importable(modules):
        demo = load(source / "engram_demo_v1.py", "engram_demo")
    for max_order, slots in ((2, 11), (3, 11), (3, 1009)):
        sizes = f"{STREAMS} streams of {LENGTH}, orders to {max_order}, {slots} slots, float64"
        for compared, result in _compare(demo, max_order, slots).items():
            yield Agreement(compared, sizes, result)


def _compare(demo: ModuleType, max_order: int, slots: int) -> dict[str, float]:
    """Largest difference of each kind of result."""
    torch.manual_seed(max_order)
    theirs = _build_theirs(demo, max_order, slots)
    ours = _build_ours(theirs, max_order, slots)
    _copy_weights(ours, theirs)

    x = torch.randn(STREAMS, LENGTH, WIDTH, dtype=torch.float64, requires_grad=True)
    tokens = torch.randint(VOCABULARY, (STREAMS, LENGTH))
    result, _ = ours(x, tokens, None, ours.begin(x))
    # Theirs have a dimension of branches, and give what a block adds to its input.
    expected = x + theirs(x[:, :, None], (tokens + 1).numpy())[:, :, 0]

    pairs = _weight_pairs(ours, theirs)
    our_gradients = gradients(result.square().sum(), [x, *(pair[0] for pair in pairs)])
    their_gradients = gradients(expected.square().sum(), [x, *(pair[1] for pair in pairs)])
    # Taps are the last weights: theirs have the oldest position first, and dimensions first.
    their_gradients[-1] = _as_taps(their_gradients[-1])

    mapping = theirs.hash_mapping
    their_sizes = torch.tensor(mapping.vocab_size_across_layers[BLOCK]).flatten()
    padded = torch.cat((ours.begin(x).tokens, tokens), 1)
    offsets = theirs.multi_head_embedding.offsets
    their_slots = torch.from_numpy(mapping.hash((tokens + 1).numpy())[BLOCK]) + offsets
    return {
        "sizes of tables": difference([torch.tensor(ours.settings.sizes).flatten()], [their_sizes]),
        "slots": difference([ours.slots(padded, None)], [their_slots]),
        "residual stream": difference([result], [expected]),
        "gradients": difference(our_gradients, their_gradients),
    }


def _build_theirs(demo: ModuleType, max_order: int, slots: int) -> Any:
    """The authors' layer in float64, with small sizes; its weights are as it begins with them."""
    orders = max_order - 1
    demo.CompressedTokenizer = Identity  # type: ignore[attr-defined]
    demo.engram_cfg = demo.EngramConfig(  # type: ignore[attr-defined]
        engram_vocab_size=[slots] * orders,
        max_ngram_size=max_order,
        n_embed_per_ngram=HEADS * ENTRY_WIDTH,
        n_head_per_ngram=HEADS,
        layer_ids=[BLOCK],
        pad_id=0,
        kernel_size=KERNEL,
    )
    demo.backbone_config = demo.BackBoneConfig(  # type: ignore[attr-defined]
        hidden_size=WIDTH, hc_mult=1, vocab_size=VOCABULARY, num_layers=2
    )
    layer = demo.Engram(BLOCK).double()
    for linear in (layer.value_proj, layer.key_projs[0]):
        linear.bias.data.zero_()
    for norm in (layer.norm1[0], layer.norm2[0], layer.short_conv.norms[0]):
        norm.eps = EPSILON
        norm.weight.data += 0.3 * torch.randn(WIDTH, dtype=torch.float64)
    return layer


def _build_ours(theirs: Any, max_order: int, slots: int) -> HashedNgrams:
    """memlm's layer in float64, with the authors' factors in its hash."""
    settings = HashedNgramsSettings(
        orders=tuple(range(2, max_order + 1)),
        heads=HEADS,
        slots=slots,
        entry_width=ENTRY_WIDTH,
        kernel=KERNEL,
        gate="signed-root",
    )
    config = TransformerConfig(width=WIDTH, heads=2, vocab_size=VOCABULARY, dropout=0.0)
    layer = HashedNgrams(config, settings).double()

    # Their factors are the same in all orders; the products stay below 2^63, as ours do.
    factors = [int(factor) for factor in theirs.hash_mapping.layer_multipliers[BLOCK]]
    layer.tables = [
        (tuple(factors[:order]), sizes)
        for order, sizes in zip(settings.orders, settings.sizes, strict=True)
    ]
    return layer


def _weight_pairs(ours: HashedNgrams, theirs: Any) -> list[tuple[Tensor, Tensor]]:
    """Weights of both that are the same; the taps of the convolution come last."""
    return [
        (ours.table, theirs.multi_head_embedding.embedding.weight),
        (ours.gate.key.weight, theirs.key_projs[0].weight),
        (ours.gate.key_norm.weight, theirs.norm1[0].weight),
        (ours.gate.stream_norm.weight, theirs.norm2[0].weight),
        (ours.value.weight, theirs.value_proj.weight),
        (ours.value_norm.weight, theirs.short_conv.norms[0].weight),
        (ours.taps, theirs.short_conv.conv.weight),
    ]


def _copy_weights(ours: HashedNgrams, theirs: Any) -> None:
    *pairs, (taps, kernel) = _weight_pairs(ours, theirs)
    for weight, source in pairs:
        weight.data.copy_(source.data)
    taps.data.copy_(_as_taps(kernel.data))


def _as_taps(kernel: Tensor) -> Tensor:
    """Weights [d, 1, kernel] of a convolution as taps [kernel, d], that of the position first."""
    return kernel[:, 0].flip(1).T
