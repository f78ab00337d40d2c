"""The Transformer with memory tokens: who sees whom, what it carries, how it begins, what it
refuses.
"""

from typing import ClassVar

import numpy as np
import pytest
import torch

from stages.errors import UsageError
from stages.examples.cutting import WindowSettings
from stages.models.backbone import Inputs
from stages.models.backbones.stream_configs import MemoryTransformerConfig, TransformerXLConfig
from stages.models.config import parse_model
from stages.models.language_model import LanguageModel
from tests.oracles.memory_tokens import memory_transformer
from tests.oracles.transformer_xl import Shape
from tests.stages.models.backbones.contract import BackboneContract
from tests.stages.models.streams import arrays, embeddings, read

V, D, HEADS, LAYERS, TOKENS = 30, 8, 2, 3, 3
KINDS = [
    {},
    {"memory_rows": "controller"},
    {"memory_rows": "bottleneck"},
    {"memory_rows": "bottleneck", "shared_controller": True},
]
SIZES = {
    "vocab_size": V,
    "width": D,
    "heads": HEADS,
    "layers": LAYERS,
    "ffn_width": 12,
    "activation": "relu",
}


def config(length=4, memory=6, **changes):
    sizes = {**SIZES, "segment_length": length, "mem_length": memory, "memory_tokens": TOKENS}
    return MemoryTransformerConfig(**{**sizes, **changes})


def model(*lengths, **changes):
    torch.manual_seed(0)
    net = LanguageModel(config(*lengths, **changes)).double().eval()
    for parameter in net.backbone.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return net


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("length", "memory"), [(4, 6), (3, 1), (25, 3), (2, 50)])
def test_a_stream_is_read_as_the_table_says(kind, length, memory):
    backbone = model(length, memory, **kind).backbone
    blocks = [
        {"tokens": arrays(block.tokens), "memory": arrays(block.rows)} for block in backbone.blocks
    ]
    hidden, ffn_input, state, _ = read(backbone, embeddings(14), [5, 6])
    want = memory_transformer(
        embeddings(14)[1].numpy(), backbone.leading.detach().numpy(), blocks, arrays(backbone.norm),
        Shape(HEADS, length, memory), kind.get("memory_rows", "shared"),
    )  # fmt: skip
    kept = min(14, memory + 14 % length)
    np.testing.assert_allclose(hidden[1], want[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ffn_input[1], want[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state["cached"][:, 1], want[2][:, 14 - kept :], rtol=1e-5, atol=1e-6)


class TestItsKinds(BackboneContract):
    @pytest.fixture(params=KINDS, ids=["shared", "controller", "bottleneck", "one-controller"])
    def kind(self, request):
        return request.param

    @pytest.fixture
    def backbone(self):
        return "memory-transformer"

    sizes: ClassVar = {"width": 8, "heads": 2, "ffn_width": 8, "memory_tokens": 3}

    @pytest.fixture
    def config(self, backbone, kind):
        return parse_model({"backbone": backbone, **self.sizes, **kind}).sized(30, 5)


@pytest.mark.parametrize("kind", KINDS)
def test_memory_never_shows_a_segment_its_own_tokens(kind):
    """A change at the last of a segment reaches nothing before it, and what memory says of it only
    the next segment.
    """
    backbone = model(4, 4, **kind).backbone
    changed = embeddings(14)
    changed[:, 7] += 1
    with torch.no_grad():
        before, after = backbone(Inputs(embeddings(14))).hidden, backbone(Inputs(changed)).hidden
    differs = (before != after).any(2)[0].tolist()
    assert differs == [False] * 7 + [True] * 7


def test_a_bottleneck_is_the_only_way_into_the_past():
    """Rows that say nothing leave a segment as if a stream began with it."""
    backbone = model(4, 4, memory_rows="bottleneck").backbone
    for block in backbone.blocks:
        for layer in (block.controller.out, block.controller.ffn.down):
            torch.nn.init.zeros_(layer.weight)
    with torch.no_grad():
        stream = backbone(Inputs(embeddings(8))).hidden[:, 4:]
        alone = backbone(Inputs(embeddings(8)[:, 4:])).hidden
    torch.testing.assert_close(stream, alone)


def test_shared_rows_have_no_controller():
    names = {
        kind: dict(model(4, 4, memory_rows=kind).named_parameters())
        for kind in ("shared", "controller")
    }
    assert [any("controller" in name for name in own) for own in names.values()] == [False, True]


@pytest.mark.parametrize("changes", [{"memory_rows": "shared"}, {"memory_rows": "controller"}])
def test_without_memory_tokens_it_is_a_transformer_xl(changes):
    ours = model(4, 6, memory_tokens=0, **changes)
    xl = LanguageModel(TransformerXLConfig(**SIZES, segment_length=4, mem_length=6)).double().eval()
    names = {"attention.qkv": "qkv", "attention.distance": "distance", "attention.out": "out"}
    names |= {f"attention.{bias}_bias": f"{bias}_bias" for bias in ("content", "position")}
    for block, mine in zip(xl.backbone.blocks, ours.backbone.blocks, strict=True):
        weights = {
            name: mine.tokens.get_parameter(_rearrays(name, names))
            for name, _ in block.named_parameters()
        }
        block.load_state_dict(weights)
    xl.backbone.norm = ours.backbone.norm
    with torch.no_grad():
        torch.testing.assert_close(
            ours.backbone(Inputs(embeddings(14))).hidden, xl.backbone(Inputs(embeddings(14))).hidden
        )


def _rearrays(name, names):
    return next(
        (name.replace(theirs, mine) for theirs, mine in names.items() if name.startswith(theirs)),
        name,
    )


def test_memory_tokens_begin_as_embeddings_do():
    torch.manual_seed(0)
    net = LanguageModel(config(width=64, memory_tokens=50))
    embedding = net.vocabulary.embedding.detach().std()
    assert float(net.backbone.leading.detach().std()) == pytest.approx(float(embedding), rel=0.1)


def test_memory_rows_have_no_gradient_into_what_they_read():
    backbone, inputs = model(4, 4).backbone, embeddings(8).requires_grad_()
    (gradient,) = torch.autograd.grad(backbone(Inputs(inputs)).hidden[:, 4:].sum(), inputs)
    assert not gradient[:, :4].any() and gradient[:, 4:].any()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layers": 1}, "2 or more fit"),
        ({"shared_controller": True}, "leave it out"),
        ({"memory_rows": "bottle"}, "memory_rows"),
        ({"width": 9, "heads": 3}, "need an even width"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        config(**changes)


def test_tokens_without_anything_to_read_are_refused():
    with pytest.raises(UsageError, match="--mem-length"):
        MemoryTransformerConfig(mem_length=0).sized(V, 4)
    with pytest.raises(UsageError, match="--mem-length"):
        config().reading(WindowSettings(4, 4, 0))
