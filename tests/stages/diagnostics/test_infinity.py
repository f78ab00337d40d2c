"""What is reported of attention to a signal: against the places that slow loops look at, one by
one.
"""

import json
from math import erf, log, sqrt
from typing import ClassVar

import numpy as np
import pytest
import torch

from stages.diagnostics.infinity import PARTS, InfinityProbe
from stages.models.config import parse_model
from stages.models.layers.memory_settings import InfinitySettings
from tests.oracles.infinity import Shape, infinity
from tests.stages.diagnostics.contract import CONTEXT, TOKENS, AttentionProbeContract, opened

CHOSEN = {"name": "infinity", "basis": 8, "samples": 5, "widths": (0.05, 0.2), "contraction": 0.7}


class TestInfinity(AttentionProbeContract):
    registered_as = "infinity"
    kind, attention = InfinityProbe, CHOSEN
    sizes: ClassVar = {"mem_length": 0, "activation": "relu"}

    def test_it_reports_where_every_head_looks(self, probe, model):
        (seen,) = self.seen(probe, model, [TOKENS])
        ids = np.random.default_rng(1).integers(0, 11, TOKENS)
        stream = torch.from_numpy(np.concatenate(([0], ids[:-1])))[None]
        embedded = model.vocabulary.embed(stream)[0].detach().double().numpy()
        blocks = [
            {n: p.detach().double().numpy() for n, p in b.named_parameters()}
            for b in model.backbone.blocks
        ]
        last = {n: p.detach().double().numpy() for n, p in model.backbone.norm.named_parameters()}
        shape = Shape(2, CONTEXT, 0, 8, 5, 0.7, True, ridge=1.0)
        _, reads = infinity(embedded, blocks, last, shape, [0] * TOKENS)
        figures = probe.metrics([json.loads(json.dumps(seen.record))])["blocks"]
        for one, block in zip(figures, reads, strict=True):
            looks = [look for heads in block.looks[CONTEXT:] for look in heads]
            assert one["seen"] == pytest.approx((TOKENS - CONTEXT) / TOKENS)
            assert one["deviation"] == pytest.approx(np.mean([s for _, s in looks]), rel=1e-4)
            ratios = [(s / shape.deviation) ** 2 for _, s in looks]
            assert one["divergence"] == pytest.approx(
                np.mean([(r - log(r) - 1) / 2 for r in ratios]), rel=1e-3
            )
            edges = np.arange(PARTS + 1) / PARTS
            below = [
                np.mean([(1 + erf((edge - m) / (s * sqrt(2)))) / 2 for m, s in looks])
                for edge in edges
            ]
            np.testing.assert_allclose(
                one["by_place"], np.diff(below) / (below[-1] - below[0]), rtol=1e-3, atol=1e-6
            )
        for name, part in (("signal_place", 0), ("signal_deviation", 1)):
            each = np.mean(
                [[np.mean([look[part] for look in heads]) for heads in one.looks] for one in reads],
                0,
            )
            np.testing.assert_allclose(seen.columns[name][CONTEXT:], each[CONTEXT:], rtol=1e-4)
            assert seen.columns[name][:CONTEXT].tolist() == [0] * CONTEXT


@pytest.mark.parametrize("backbone", ["transformer", "transformer-xl"])
def test_other_models_have_no_probe(backbone):
    assert (
        opened(
            InfinityProbe,
            parse_model({"width": 8, "heads": 2, "backbone": backbone}).sized(11, CONTEXT),
        )
        is None
    )


def test_a_line_says_where_half_of_attention_lies():
    parts = [0.0] * PARTS
    parts[4], parts[12] = 3.0, 1.0
    record = {
        "tokens": 8,
        "layers": [{"seen": 4.0, "parts": parts, "deviation": 1.0, "divergence": 2.0}],
    }
    figures = InfinityProbe((2,), InfinitySettings()).metrics([record, record])
    place = (4 + 2 / 3) / 16
    line = f"infinity: block 2 sees a signal for 50.0%, half of its attention in the oldest {place:.2f} of it"
    assert InfinityProbe.summary(figures) == f"{line}, deviation 0.25"
    nothing = dict.fromkeys(("seen", "deviation", "divergence"), 0.0)
    none = InfinityProbe((1,), InfinitySettings()).metrics(
        [{"tokens": 8, "layers": [{"parts": [0.0] * PARTS, **nothing}]}]
    )
    assert InfinityProbe.summary(none) == "infinity: block 1 sees no signal"
