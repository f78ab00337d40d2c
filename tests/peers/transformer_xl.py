"""Transformer-XL: the authors' network with memlm's weights, segment after segment of streams."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.func import functional_call

from stages.models.backbone import State
from stages.models.backbones import segmented as network
from stages.models.backbones.stream_configs import TransformerXLConfig
from stages.models.language_model import LanguageModel
from stages.models.vocabulary import FullVocabulary
from tests.peers.agreement import Agreement, difference, gradients
from tests.peers.sources import Peer, importable, load

PEER = Peer(
    name="transformer-xl",
    address="kimiyoung/transformer-xl",
    commit="44781ed21dbaec88b280f74d9ae2877f52b492a5",
    made_equal="memlm is given their sinusoids (rates fall to 10000^-(1 - 2/d), memlm's to 1/10000), one pair of "
    "attention biases for all layers, and no layer norm after the last; its bias after attention, which theirs has "
    "not, is 0, as are the biases of their adaptive softmax; its costs keep the order of tokens (keep_order)",
    patched="torch.version.cuda is there; masks are bool, not bytes; scores stay float64",
)

V, WIDTH, HEADS, LAYERS, INNER, STREAMS, SEGMENTS, LENGTH = 11, 16, 2, 3, 24, 8, 5, 6
CUTOFFS, FACTOR = [4, 7], 2
SOFTMAXES = ("full", "adaptive")
MEMORIES = ((0,), (1, 4, LENGTH, 15))


class Read(NamedTuple):
    """Of a segment."""

    costs: Tensor
    """-log p of its tokens, [B, L]."""
    loss: Tensor
    """Their mean."""
    carried: Any
    """What the next one goes on from, of either network."""


def comparisons(source: Path) -> Iterator[Agreement]:
    with _on_todays_torch(), importable({}, source / "pytorch" / "utils"):
        network_of = load(
            source / "pytorch" / "mem_transformer.py", "mem_transformer"
        ).MemTransformerLM
        for softmax, memories in product(SOFTMAXES, MEMORIES):
            apart = [one for memory in memories for one in _compare(network_of, softmax, memory)]
            sizes = f"{SEGMENTS} segments of {LENGTH}, M {', '.join(map(str, memories))}, {softmax} softmax, float64"
            for what in apart[0]:
                yield Agreement(what, sizes, max(of_segment[what] for of_segment in apart))


def _compare(network_of: Any, softmax: str, memory: int) -> Iterator[dict[str, float]]:
    """How far apart both are in each segment, by what is compared."""
    model, theirs = _model(softmax, memory), _theirs(network_of, softmax, memory)
    weights = [
        weight
        for name, weight in model.named_parameters()
        if not name.endswith("attention.out.bias")
    ]
    made = torch.Generator().manual_seed(memory)
    tokens = torch.randint(0, V, (STREAMS, SEGMENTS * LENGTH + 1), generator=made)
    segments = (part.split(LENGTH, 1) for part in (tokens[:, :-1], tokens[:, 1:]))
    ours = other = Read(torch.empty(0), torch.empty(0), None)
    for inputs, targets in zip(*segments, strict=True):
        ours = _read_ours(model, theirs, inputs, targets, ours.carried)
        other = _read_theirs(model, theirs, inputs, targets, other.carried)
        apart = {
            "-log p of each token": difference([ours.costs], [other.costs]),
            "gradients": difference(*(gradients(read.loss, weights) for read in (ours, other))),
        }
        if memory:
            cached = [layer.transpose(0, 1) for layer in other.carried[:LAYERS]]
            apart["inputs of layers that are carried"] = difference(ours.carried["cached"], cached)
        yield apart


def _model(softmax: str, memory: int) -> LanguageModel:
    torch.manual_seed(memory)
    sizes = {"vocab_size": V, "width": WIDTH, "heads": HEADS, "layers": LAYERS, "ffn_width": INNER}
    vocabulary = (
        {"cutoffs": CUTOFFS, "factor": FACTOR} if softmax == "adaptive" else {"score_bias": True}
    )
    lengths = {"segment_length": LENGTH, "mem_length": memory}
    config = TransformerXLConfig(**sizes, **vocabulary, **lengths, activation="relu", dropout=0.0)
    model = LanguageModel(config).double()
    model.backbone.norm = nn.Identity()
    first = model.backbone.blocks[0].attention
    for block in model.backbone.blocks:
        block.attention.content_bias, block.attention.position_bias = (
            first.content_bias,
            first.position_bias,
        )
    for name, weight in model.named_parameters():
        if name.endswith(("bias", "norm.weight")) and not name.endswith("attention.out.bias"):
            nn.init.normal_(weight, mean=float(name.endswith("weight")), std=0.5)
    return model


def _theirs(network_of: Any, softmax: str, memory: int) -> nn.Module:
    adaptive = {"cutoffs": CUTOFFS, "div_val": FACTOR, "tie_projs": [True] * (len(CUTOFFS) + 1)}
    settings = {
        "tgt_len": LENGTH,
        "ext_len": 0,
        "mem_len": memory,
        **(adaptive if softmax == "adaptive" else {}),
    }
    sizes = (V, LAYERS, HEADS, WIDTH, WIDTH // HEADS, INNER)
    theirs: Any = network_of(*sizes, dropout=0.0, dropatt=0.0, pre_lnorm=True, **settings)
    theirs.crit.keep_order = True
    for number in range(len(theirs.crit.out_layers)):
        nn.init.zeros_(theirs.crit.out_layers[number].bias)
    return theirs.double()


def _read_ours(
    model: LanguageModel, theirs: Any, inputs: Tensor, targets: Tensor, carried: State
) -> Read:
    def sinusoids(length: int, width: int, device: torch.device) -> Tensor:
        vectors: Tensor = theirs.pos_emb(torch.arange(length, dtype=torch.float64))[:, 0]
        return vectors

    with patch.object(network, "sinusoids", sinusoids):
        encoding = model.encode(inputs, carried)
    read = encoding.hidden.flatten(0, 1), targets.flatten()
    log_p, _ = model.log_prob(*read)
    return Read(-log_p.view(targets.shape), model.loss(*read), encoding.state)


def _read_theirs(
    model: LanguageModel, theirs: nn.Module, inputs: Tensor, targets: Tensor, carried: Any
) -> Read:
    """Their tensors have the positions first."""
    given = inputs.T.contiguous(), targets.T.contiguous(), *(carried or ())
    read = functional_call(theirs, dict(_weights(model)), given)
    return Read(read[0].T, read[0].mean(), tuple(read[1:]) or None)


def _weights(model: LanguageModel) -> Iterator[tuple[str, Tensor]]:
    """memlm's, by their names."""
    blocks: Any = model.backbone.blocks
    yield from _of_vocabulary(model.vocabulary)
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


def _of_vocabulary(vocabulary: Any) -> Iterator[tuple[str, Tensor]]:
    """Their head has the entries of further clusters in falling order."""
    if isinstance(vocabulary, FullVocabulary):
        yield "word_emb.emb_layers.0.weight", vocabulary.embedding
        yield "crit.out_layers.0.bias", vocabulary.bias
        return
    yield "crit.cluster_weight", vocabulary.clusters.flip(0)
    for number, (table, projection) in enumerate(
        zip(vocabulary.embeddings, vocabulary.projections, strict=True)
    ):
        yield f"word_emb.emb_layers.{number}.weight", table
        yield f"word_emb.emb_projs.{number}", projection


@contextmanager
def _on_todays_torch() -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(patch.object(torch.version, "cuda", torch.version.cuda or "0.0"))
        stack.enter_context(patch.object(Tensor, "byte", Tensor.bool))
        stack.enter_context(patch.object(Tensor, "float", lambda scores: scores))
        yield
