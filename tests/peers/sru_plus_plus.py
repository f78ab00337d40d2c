"""SRU++: the author's network with memlm's weights, segment after segment of streams."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from stages.models.backbone import Inputs, State
from stages.models.backbones.stream_configs import SRUPlusPlusConfig
from stages.models.language_model import LanguageModel
from tests.peers.agreement import Agreement, difference, gradients
from tests.peers.sources import Peer, importable, stand_in

PEER = Peer(
    name="sru++",
    address="asappresearch/sru",
    commit="c2d44e6",
    made_equal="nothing: M is the segment length, as there. Check out the branch 3.0.0-dev, which alone has SRU++",
    patched="nothing of it is compiled, so its loop in Python computes",
)
WIDTH, PROJECTION, LAYERS, STREAMS, SEGMENTS, LENGTH = 16, 8, 3, 4, 4, 6


def comparisons(source: Path) -> Iterator[Agreement]:
    with (
        patch("torch.utils.cpp_extension.load"),
        patch("torch.jit.script", lambda function: function),
        importable(
            {"sru.cuda_functional": stand_in("cuda", elementwise_recurrence_forward=None)}, source
        ),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        from sru.modules import SRUpp

        for heads, every in ((1, 1), (2, 1), (1, 2)):
            sizes = f"{SEGMENTS} segments of {LENGTH}, heads {heads}, attention in every {every}, float64"
            yield from (
                Agreement(what, sizes, apart)
                for what, apart in _compare(SRUpp, heads, every).items()
            )


def _compare(network_of: Any, heads: int, every: int) -> dict[str, float]:
    """How far apart both are at the most, by what is compared."""
    torch.manual_seed(heads)
    config = SRUPlusPlusConfig(
        vocab_size=11, width=WIDTH, projection=PROJECTION, layers=LAYERS, heads=heads, attention_every=every,
        segment_length=LENGTH, mem_length=LENGTH, dropout=0.0,
    )  # fmt: skip
    ours = LanguageModel(config).double().backbone
    for weight in ours.parameters():
        weight.data += 0.3 * torch.randn_like(weight)
    theirs = network_of(
        WIDTH, WIDTH, PROJECTION, num_layers=LAYERS, num_heads=heads, attention_every_n_layers=every
    ).double()
    theirs.load_state_dict(dict(_weights(ours, theirs)))
    stream = torch.randn(STREAMS, SEGMENTS, LENGTH, WIDTH, dtype=torch.float64)
    mask = torch.full((2 * LENGTH, 2 * LENGTH), -torch.inf, dtype=torch.float64).triu(1)
    state: State = None
    cells, memory, apart = None, [None] * LAYERS, dict[str, float]()
    for segment in stream.unbind(1):
        encoding = ours(Inputs(segment, state))
        begin = 0 if memory[0] is None else LENGTH
        hidden, after, kept = theirs(
            segment.transpose(0, 1),
            cells,
            memory=memory,
            attn_mask=mask[begin : begin + LENGTH, : begin + LENGTH],
        )
        assert encoding.state is not None
        state, cells = encoding.state, after.detach()
        memory = [one.detach() for one in kept["saved_inputs"]]
        carried = [state[f"block{number + 1}.c"] for number in range(LAYERS)]
        both = [ours, theirs]
        first, other = (
            gradients(f.square().sum(), [network.get_parameter(name) for name in names])
            for network, f, names in zip(
                both, (encoding.hidden, hidden), zip(*_same(ours), strict=True), strict=True
            )
        )
        found = {
            "hidden states": difference([encoding.hidden], [hidden.transpose(0, 1)]),
            "cells that are carried": difference(carried, list(cells)),
            "inputs of layers that are carried": difference(
                state["cached"].transpose(1, 2), memory
            ),
            "gradients": difference(first, other),
        }
        apart = {what: max(one, apart.get(what, 0.0)) for what, one in found.items()}
    return apart


def _same(ours: Any) -> Iterator[tuple[str, str]]:
    """Names of weights that have the same numbers in the same order, here and there."""
    for number, block in enumerate(ours.blocks):
        here, there = f"blocks.{number}.projection", f"rnn_lst.{number}.transform_module"
        attends = block.projection.alpha is not None
        yield f"{here}.down.weight", f"{there}.linear1.weight"
        yield f"{here}.norm.weight", f"{there}.layer_norm.weight"
        yield f"{here}.norm.bias", f"{there}.layer_norm.bias"
        if attends:
            yield f"{here}.keys_values.weight", f"{there}.linear2.weight"
            yield f"{here}.alpha", f"{there}.alpha"


def _weights(ours: Any, theirs: Any) -> Iterator[tuple[str, Tensor]]:
    """memlm's, by their names; theirs has the three terms of a number beside each other."""
    yield from theirs.state_dict().items()
    for here, there in _same(ours):
        yield there, ours.get_parameter(here).data
    for number, block in enumerate(ours.blocks):
        last = "linear2" if block.projection.alpha is None else "linear3"
        out = (
            block.projection.out.weight.data.unflatten(0, (3, WIDTH)).transpose(0, 1).flatten(0, 1)
        )
        yield f"rnn_lst.{number}.transform_module.{last}.weight", out
        yield (
            f"rnn_lst.{number}.weight_c",
            torch.cat((block.carry_forget, block.carry_highway)).data,
        )
        yield f"rnn_lst.{number}.bias", torch.cat((block.forget_bias, block.highway_bias)).data
