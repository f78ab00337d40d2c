"""Transformer-XL: the authors' network with memlm's weights, segment after segment of streams."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.func import functional_call

from stages.models.backbone import State
from stages.models.backbones.transformer_xl import network
from stages.models.backbones.transformer_xl.config import TransformerXLConfig
from stages.models.language_model import LanguageModel
from tests.peers.agreement import Agreement, difference, gradients
from tests.peers.sources import Peer, importable, load

PEER = Peer(
    name="transformer-xl",
    address="kimiyoung/transformer-xl",
    commit="44781ed21dbaec88b280f74d9ae2877f52b492a5",
    made_equal="memlm is given their sinusoids (rates fall to 10000^-(1 - 2/d), memlm's to 1/10000), one pair of "
    "attention biases for all layers, and no layer norm after the last; its bias after attention, which theirs has "
    "not, is 0",
    patched="torch.version.cuda is there; masks are bool, not bytes; scores stay float64",
)

V, WIDTH, HEADS, LAYERS, INNER, STREAMS, SEGMENTS, LENGTH = 11, 16, 2, 3, 24, 2, 5, 6
MEMORIES = ((0,), (1, 4, LENGTH, 15))


class Read(NamedTuple):
    """Of a segment."""

    costs: Tensor
    """-log p of its tokens, [B, L]."""
    carried: State
    """What the next one goes on from, of either network."""


def comparisons(source: Path) -> Iterator[Agreement]:
    with _on_todays_torch(), importable({}, source / "pytorch" / "utils"):
        network_of = load(source / "pytorch" / "mem_transformer.py", "mem_transformer").MemTransformerLM
        for memories in MEMORIES:
            apart = [
                one for memory in memories for one in _compare(_model(memory), _theirs(network_of, memory), memory)
            ]
            sizes = f"{SEGMENTS} segments of {LENGTH}, M {', '.join(map(str, memories))}, {LAYERS} layers, float64"
            for what in apart[0]:
                yield Agreement(what, sizes, max(of_segment[what] for of_segment in apart))


def _compare(model: LanguageModel, theirs: nn.Module, memory: int) -> Iterator[dict[str, float]]:
    """How far apart both are in each segment, by what is compared."""
    weights = [weight for name, weight in model.named_parameters() if not name.endswith("attention.out.bias")]
    made = torch.Generator().manual_seed(memory)
    tokens = torch.randint(0, V, (STREAMS, SEGMENTS * LENGTH + 1), generator=made)
    segments = (part.split(LENGTH, 1) for part in (tokens[:, :-1], tokens[:, 1:]))
    ours = other = Read(torch.empty(0), None)
    for inputs, targets in zip(*segments, strict=True):
        ours = _read_ours(model, theirs, inputs, targets, ours.carried)
        other = _read_theirs(model, theirs, inputs, targets, other.carried)
        apart = {
            "-log p of each token": difference([ours.costs], [other.costs]),
            "gradients": difference(*(gradients(read.costs.mean(), weights) for read in (ours, other))),
        }
        if memory:
            cached = [layer.transpose(0, 1) for layer in other.carried[:LAYERS]]
            apart["inputs of layers that are carried"] = difference(ours.carried[0], cached)
        yield apart


def _model(memory: int) -> LanguageModel:
    torch.manual_seed(memory)
    sizes = {"vocab_size": V, "width": WIDTH, "heads": HEADS, "layers": LAYERS, "ffn_width": INNER}
    config = TransformerXLConfig(
        **sizes, activation="relu", dropout=0.0, score_bias=True, segment_length=LENGTH, memory_length=memory
    )
    model = LanguageModel(config).double()
    model.backbone.norm = nn.Identity()
    first = model.backbone.blocks[0].attention
    for block in model.backbone.blocks:
        block.attention.content_bias, block.attention.position_bias = first.content_bias, first.position_bias
    for name, weight in model.named_parameters():
        if name.endswith(("bias", "norm.weight")) and not name.endswith("attention.out.bias"):
            nn.init.normal_(weight, mean=float(name.endswith("weight")), std=0.5)
    return model


def _theirs(network_of: Any, memory: int) -> nn.Module:
    lengths = {"tgt_len": LENGTH, "ext_len": 0, "mem_len": memory}
    sizes = (V, LAYERS, HEADS, WIDTH, WIDTH // HEADS, INNER)
    theirs: nn.Module = network_of(*sizes, dropout=0.0, dropatt=0.0, pre_lnorm=True, **lengths)
    return theirs.double()


def _read_ours(model: LanguageModel, theirs: Any, inputs: Tensor, targets: Tensor, carried: State) -> Read:
    def sinusoids(length: int, width: int, device: torch.device) -> Tensor:
        vectors: Tensor = theirs.pos_emb(torch.arange(length, dtype=torch.float64))[:, 0]
        return vectors

    with patch.object(network, "sinusoids", sinusoids):
        encoding = model.encode(inputs, carried)
    hidden = encoding.hidden.flatten(0, 1)
    costs = [model.loss(context[None], target[None]) for context, target in zip(hidden, targets.flatten(), strict=True)]
    return Read(torch.stack(costs).view(targets.shape), encoding.state)


def _read_theirs(model: LanguageModel, theirs: nn.Module, inputs: Tensor, targets: Tensor, carried: State) -> Read:
    """Their tensors have the positions first."""
    given = inputs.T, targets.T.contiguous(), *(carried or ())
    read = functional_call(theirs, dict(_weights(model)), given)
    return Read(read[0].T, tuple(read[1:]) or None)


def _weights(model: LanguageModel) -> Iterator[tuple[str, Tensor]]:
    """memlm's, by their names."""
    vocabulary: Any = model.vocabulary
    blocks: Any = model.backbone.blocks
    yield "word_emb.emb_layers.0.weight", vocabulary.embedding
    yield "crit.out_layers.0.bias", vocabulary.bias
    yield "r_w_bias", blocks[0].attention.content_bias
    yield "r_r_bias", blocks[0].attention.position_bias
    for number, block in enumerate(blocks):
        attention, feed_forward = f"layers.{number}.dec_attn", f"layers.{number}.pos_ff"
        yield f"{attention}.qkv_net.weight", block.attention.qkv.weight
        yield f"{attention}.r_net.weight", block.attention.distance.weight
        yield f"{attention}.o_net.weight", block.attention.out.weight
        layers = {
            f"{attention}.layer_norm": block.attention_norm,
            f"{feed_forward}.layer_norm": block.ffn_norm,
            f"{feed_forward}.CoreNet.0": block.ffn.up,
            f"{feed_forward}.CoreNet.3": block.ffn.down,
        }
        for name, layer in layers.items():
            yield f"{name}.weight", layer.weight
            yield f"{name}.bias", layer.bias


@contextmanager
def _on_todays_torch() -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(patch.object(torch.version, "cuda", torch.version.cuda or "0.0"))
        stack.enter_context(patch.object(Tensor, "byte", Tensor.bool))
        stack.enter_context(patch.object(Tensor, "float", lambda scores: scores))
        yield
