"""What is reported of product-key memories: counted slot by slot."""

import json
from collections import Counter
from math import log
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from stages.diagnostics.product_keys import ProductKeysProbe, packed, unpacked
from stages.models.config import BackboneConfig, parse_model
from stages.models.language_model import LanguageModel
from tests.stages.diagnostics.contract import CONTEXT, ProbeContract

KEYS = {"name": "product-keys", "heads": 2, "sub_keys": 5, "neighbors": 3}


def config(**changes) -> BackboneConfig:
    return parse_model({"width": 8, "layers": 3, "heads": 2, **changes}).sized(11, CONTEXT)


def opened(model: BackboneConfig) -> ProductKeysProbe | None:
    artifact = SimpleNamespace(path=Path(), config={"model": model.model_dump(mode="json")})
    return ProductKeysProbe.open({"model": artifact}, {}, "test")


class TestProductKeys(ProbeContract):
    registered_as = "product_keys"

    @pytest.fixture(params=["transformer", "transformer-xl"])
    def model(self, request) -> LanguageModel:
        torch.manual_seed(0)
        keys = KEYS | {"layers": [1, 3]}
        return LanguageModel(config(backbone=request.param, feed_forward=keys)).eval()

    @pytest.fixture
    def probe(self, model) -> ProductKeysProbe:
        return opened(model.config)

    def reader(self, start: int, stop: int) -> None:
        return None

    def test_it_watches_layers_that_share_their_values(self):
        model = LanguageModel(config(feed_forward=KEYS | {"name": "memory-plus"})).eval()
        probe = opened(model.config)
        (seen,) = self.seen(probe, model, [24])
        blocks = probe.metrics([json.loads(json.dumps(seen.record))])["blocks"]
        assert [(one["block"], one["slots"]) for one in blocks] == [(1, 25), (2, 25)]

    def test_it_counts_what_the_layers_read(self, probe, model):
        (seen,) = self.seen(probe, model, [24])
        found = []
        hook = model.backbone.blocks[2].ffn.lookup.register_forward_hook(
            lambda *call: found.append(call[2])
        )
        self.seen(probe, model, [24])
        hook.remove()
        total, first = Counter(), Counter()
        for one in found:
            for slots, weights in zip(
                one.slots.flatten(0, 2), one.weights.flatten(0, 2), strict=True
            ):
                total.update(dict(zip(slots.tolist(), weights.tolist(), strict=True)))
                first[int(slots[0])] += 1
        figures = probe.metrics([json.loads(json.dumps(seen.record))])["blocks"][1]
        every = sum(total.values())
        kl = log(25) + sum(w / every * log(w / every) for w in total.values())
        assert (figures["block"], figures["slots"]) == (3, 25)
        assert figures["usage"] == len(total) / 25
        assert figures["best_usage"] == len(first) / 25
        assert figures["kl"] == pytest.approx(kl, abs=1e-6)
        assert figures["heaviest"][0] == [1, pytest.approx(max(total.values()) / every)]
        assert figures["heaviest"][-1] == [25, pytest.approx(1)]

    def test_nobody_looks_on_afterwards(self, probe, model):
        self.seen(probe, model, [9, 24])
        assert not any(
            block.ffn.lookup._forward_hooks
            for block in model.backbone.blocks
            if hasattr(block.ffn, "lookup")
        )


@pytest.mark.parametrize(
    "changes", [{}, {"backbone": "transformer-xl"}, {"backbone": "lstm", "layers": 1}]
)
def test_other_models_have_no_probe(changes):
    sizes = {"width": 8} if changes.get("backbone") == "lstm" else {"width": 8, "heads": 2}
    assert opened(parse_model(sizes | changes).sized(11, 8)) is None


def test_even_use_has_no_divergence_and_one_slot_all_of_it():
    even, one = torch.ones(16).numpy(), torch.eye(16)[3].numpy()
    for weights, usage, kl in ((even, 1, 0), (one, 1 / 16, log(16))):
        record = {"tokens": 1, "layers": [{"weights": packed(weights), "best": packed(weights)}]}
        (figures,) = ProductKeysProbe((2,)).metrics([record, record])["blocks"]
        assert (figures["usage"], figures["kl"]) == (usage, pytest.approx(kl))
        assert unpacked(packed(weights)).tolist() == weights.tolist()
    line = ProductKeysProbe.summary(ProductKeysProbe((2,)).metrics([record]))
    assert line == "product keys: block 2 read 6.2% of 16 slots, KL 2.77 nats from even use"
