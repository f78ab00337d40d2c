"""Scopes of a lookup and an attention in one block: each layer obeys its own scope, whatever the
other asks for.
"""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch

from stages.models.backbone import Inputs
from stages.models.config import parse_model
from stages.models.language_model import LanguageModel
from stages.models.layers.hashed_ngrams import hash_factors
from stages.training.config import TrainConfig
from tests.oracles import compressive, infinity, memorizing, transformer_xl
from tests.oracles.hashed_ngrams import hashed_ngrams
from tests.oracles.transformer_xl import norm
from tests.stages.models.streams import arrays, embeddings

VOCABULARY = 30
WIDTH = 8
HEADS = 2
SEGMENT = 4
CACHED = 4
LENGTH = 23
DOCUMENT_STARTS = [0, 7, 13]

ATTENTIONS: dict[str, dict[str, Any]] = {
    "relative": {"name": "relative"},
    "compressive": {"name": "compressive", "long_length": 2, "rate": 2, "compression": "mean"},
    "memorizing document": {"name": "memorizing", "scope": "document"},
    "memorizing stream": {"name": "memorizing", "scope": "stream"},
    "infinity document": {"name": "infinity", "scope": "document"},
    "infinity stream": {"name": "infinity", "scope": "stream"},
}
LOOKUPS: dict[str, dict[str, Any]] = {
    "none": {"name": "none"},
    "ngrams document": {"name": "hashed-ngrams", "scope": "document"},
    "ngrams stream": {"name": "hashed-ngrams", "scope": "stream"},
}
SIZES: dict[str, dict[str, Any]] = {
    "relative": {},
    "compressive": {},
    "memorizing": {"long_length": 8, "neighbors": 3, "buckets": 6, "longest_distance": 10},
    "infinity": {"basis": 6, "samples": 5, "contraction": 0.75, "widths": (0.05, 0.2)},
    "none": {},
    "hashed-ngrams": {"heads": 2, "slots": 50, "entry_width": 3, "kernel": 3},
}
COMBINATIONS = [(attention, lookup) for attention in ATTENTIONS for lookup in LOOKUPS]


def starts_by_position(scope: str) -> list[int]:
    """First position of the document of each position; 0 where documents do not matter."""
    if scope == "stream":
        return [0] * LENGTH
    return [
        max(start for start in DOCUMENT_STARTS if start <= position) for position in range(LENGTH)
    ]


def block_settings(attention: str, lookup: str, backbone: str = "transformer-xl") -> dict[str, Any]:
    attention_settings = ATTENTIONS[attention] | SIZES[ATTENTIONS[attention]["name"]]
    lookup_settings = LOOKUPS[lookup] | SIZES[LOOKUPS[lookup]["name"]]
    sizes = {"width": WIDTH, "heads": HEADS, "layers": 1, "ffn_width": 12, "activation": "relu"}
    if backbone == "transformer":
        return {
            **sizes,
            "backbone": backbone,
            "dropout": 0.0,
            "lookup": lookup_settings,
            "positions": "sinusoidal",
        }
    return {
        **sizes,
        "backbone": backbone,
        "mem_length": CACHED,
        "dropout": 0.0,
        "attention": attention_settings,
        "lookup": lookup_settings,
    }


def build(settings: dict[str, Any]) -> LanguageModel:
    """One block in float64; equal names of weights have equal weights in all combinations."""
    model = LanguageModel(parse_model(settings).sized(VOCABULARY, SEGMENT)).double().eval()
    for name, parameter in model.backbone.named_parameters():
        generator = torch.Generator().manual_seed(sum(name.encode()))
        parameter.data = 0.5 * torch.randn(
            parameter.shape, dtype=torch.float64, generator=generator
        )
    return model


def stream_tokens() -> torch.Tensor:
    return torch.randint(VOCABULARY, (1, LENGTH), generator=torch.Generator().manual_seed(2))


def read(model: LanguageModel) -> np.ndarray:
    """Hidden states [T, d] of a stream, given offsets exactly if a layer of the model asks for them."""
    offsets = None
    if model.config.reads.documents:
        starts = torch.tensor(starts_by_position("document"))
        offsets = (torch.arange(LENGTH) - starts)[None]
    with torch.no_grad():
        inputs = Inputs(embeddings(LENGTH, 1), None, offsets, tokens=stream_tokens())
        return model.backbone(inputs).hidden[0].numpy()


def slow_lookup(lookup: Any, x: np.ndarray) -> np.ndarray:
    """Residual stream [T, d] after hashed n-grams, with the documents of their scope."""
    settings = lookup.settings
    tables = list(zip(settings.orders, settings.sizes, strict=True))
    factors = {order: hash_factors(VOCABULARY, order) for order in settings.orders}
    starts = DOCUMENT_STARTS if settings.scope == "document" else [0]
    tokens = stream_tokens()[0].tolist()
    return hashed_ngrams(x, tokens, starts, arrays(lookup), tables, factors)


def slow_attention(name: str, weights: dict[str, Any], x: np.ndarray) -> np.ndarray:
    """Term that an attention adds to the residual stream, [T, d]."""
    kind, _, scope = name.partition(" ")
    documents = starts_by_position(scope or "stream")
    if kind == "relative":
        shape = transformer_xl.Shape(HEADS, SEGMENT, CACHED)
        return transformer_xl.attended(weights, x, shape)
    if kind == "compressive":
        sizes = compressive.Shape(HEADS, SEGMENT, CACHED, slots=2, rate=2)
        return compressive.attended(weights, x, sizes, "mean")
    if kind == "memorizing":
        entries = memorizing.Shape(HEADS, SEGMENT, CACHED, entries=8, neighbors=3)
        return memorizing.attended(weights, x, entries, documents, 10)
    signal = infinity.Shape(HEADS, SEGMENT, CACHED, 6, 5, 0.75, True, ridge=1.0)
    return infinity.attended(weights, x, signal, documents, 20001).added


def slow_hidden(attention: str, lookup: str, model: LanguageModel) -> np.ndarray:
    """Hidden states [T, d], position by position, each layer with the documents of its scope."""
    block = model.backbone.blocks[0]
    weights = arrays(block)
    x = embeddings(LENGTH, 1)[0].numpy() * WIDTH**0.5

    if lookup != "none":
        x = slow_lookup(block.lookup, x)

    x = x + slow_attention(attention, weights, x)
    ffn_input = np.stack(
        [norm(row, weights["ffn_norm.weight"], weights["ffn_norm.bias"]) for row in x]
    )
    up = np.maximum(ffn_input @ weights["ffn.up.weight"].T + weights["ffn.up.bias"], 0)
    x = x + up @ weights["ffn.down.weight"].T + weights["ffn.down.bias"]
    last = arrays(model.backbone.norm)
    return np.stack([norm(row, last["weight"], last["bias"]) for row in x])


@pytest.mark.parametrize(("attention", "lookup"), COMBINATIONS)
def test_each_layer_reads_the_documents_of_its_own_scope(attention: str, lookup: str) -> None:
    model = build(block_settings(attention, lookup))
    expected = slow_hidden(attention, lookup, model)
    # The signal of infinity is fitted from distances in float32.
    np.testing.assert_allclose(read(model), expected, rtol=1e-4, atol=1e-5)


def test_all_combinations_differ() -> None:
    """No setting is without effect: weights of one name are equal, and hidden states are not."""
    hidden = {names: read(build(block_settings(*names))) for names in COMBINATIONS}
    for first, second in combinations(COMBINATIONS, 2):
        assert np.abs(hidden[first] - hidden[second]).max() > 1e-3, (first, second)


@pytest.mark.parametrize("scope", ["document", "stream"])
def test_lookup_of_a_window_reads_the_documents_of_its_scope(scope: str) -> None:
    """A window that has offsets all the same, as if another layer had asked for them."""
    model = build(block_settings("relative", f"ngrams {scope}", "transformer"))
    lookup = model.backbone.blocks[0].lookup
    calls = list[tuple[np.ndarray, np.ndarray]]()
    lookup.register_forward_hook(
        lambda _, arguments, result: calls.append((arguments[0][0].numpy(), result[0][0].numpy()))
    )
    starts = torch.tensor(starts_by_position("document"))
    offsets = (torch.arange(LENGTH) - starts)[None]
    with torch.no_grad():
        model.backbone(Inputs(embeddings(LENGTH, 1), None, offsets, tokens=stream_tokens()))
    ((before, after),) = calls
    np.testing.assert_allclose(after, slow_lookup(lookup, before), rtol=1e-9, atol=1e-9)


def test_a_layer_in_other_blocks_does_not_change_the_scope() -> None:
    """The attention stands in block 2 alone; the lookup of block 1 still has the stream's scope."""
    settings = block_settings("memorizing document", "ngrams stream") | {"layers": 2}
    settings["attention"] = settings["attention"] | {"layers": (2,)}
    model = build(settings)
    assert model.config.reads.documents
    starts = torch.tensor(starts_by_position("document"))
    offsets = (torch.arange(LENGTH) - starts)[None]
    after_lookup = list[torch.Tensor]()
    model.backbone.blocks[0].lookup.register_forward_hook(
        lambda _, arguments, result: after_lookup.append(result[0])
    )
    with torch.no_grad():
        for offset in (offsets, None):
            model.backbone(Inputs(embeddings(LENGTH, 1), None, offset, tokens=stream_tokens()))
    assert torch.equal(
        torch.cat(after_lookup[: len(after_lookup) // 2], 1),
        torch.cat(after_lookup[len(after_lookup) // 2 :], 1),
    )


def test_two_scopes_are_two_models() -> None:
    """Settings of training with either scope differ, as the weights that they make do."""
    identities = [
        TrainConfig.model_validate(
            {"model": block_settings("memorizing document", f"ngrams {scope}")}
        ).canonical()
        for scope in ("document", "stream")
    ]
    assert identities[0] != identities[1]
