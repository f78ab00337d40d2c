"""What is reported of memorizing attention: against keys and queries, one by one."""

import json
from collections import Counter

import numpy as np
import pytest

from stages.diagnostics.memorizing.probe import MemorizingProbe
from stages.diagnostics.memorizing.report import AGES, search_figures, summary
from stages.models.config import parse_model
from tests.stages.diagnostics.contract import CONTEXT, TOKENS, AttentionProbeContract, opened

CHOSEN = {"name": "memorizing", "memory_size": 12, "neighbors": 3, "layers": [2]}


class TestMemorizing(AttentionProbeContract):
    registered_as = "memorizing"
    kind, attention = MemorizingProbe, CHOSEN

    def test_it_counts_what_searches_find(self, probe, model):
        found, layer = [], model.backbone.blocks[1].attention
        hook = layer.search.register_forward_hook(lambda *call: found.append(call[2]))
        (seen,) = self.seen(probe, model, [TOKENS])
        hook.remove()
        gates, by_age, column, best = layer.gates().tolist(), Counter(), [], []
        for one in found:
            for query in range(one.read.shape[2]):
                heaviest = (0.0, 0)
                for head in range(2):
                    weights, ages = one.weights[0, head, query].tolist(), one.ages[0, head, query].tolist()
                    scores = one.scores[0, head, query].tolist()
                    for weight, age in zip(weights, ages, strict=True):
                        by_age[age.bit_length() - 1] += weight
                    if weights:
                        at = int(np.argmax(weights))
                        best.append(scores[at])
                        heaviest = max(heaviest, (gates[head] * weights[at], ages[at]))
                column.append(heaviest)
        (figures,) = probe.metrics([json.loads(json.dumps(seen.record))])["blocks"]
        assert figures["block"] == 2
        assert figures["gates"] == pytest.approx(gates)
        assert figures["found"] == pytest.approx((TOKENS - CONTEXT) / TOKENS)
        assert figures["score"] == pytest.approx(np.mean(best), rel=1e-5)
        total = sum(by_age.values())
        for age, share in figures["by_age"]:
            assert share == pytest.approx(by_age[age.bit_length() - 1] / total, abs=1e-6)
        np.testing.assert_allclose(seen.columns["memory_weight"], [weight for weight, _ in column], rtol=1e-5)
        assert seen.columns["memory_age"].tolist() == [age for _, age in column]


@pytest.mark.parametrize("backbone", ["transformer", "transformer-xl"])
def test_other_models_have_no_probe(backbone):
    assert (
        opened(MemorizingProbe, parse_model({"width": 8, "heads": 2, "backbone": backbone}).sized(11, CONTEXT)) is None
    )


def test_a_line_says_how_far_back_memory_is_read():
    ages = [0.0] * AGES
    ages[3], ages[9] = 1.0, 3.0
    record = {"tokens": 4, "ages": [ages], "scores": [12.0], "found": [4.0]}
    figures = search_figures([record], [3], [[0.25, 0.75]])
    assert figures["blocks"][0]["by_age"][9] == [512, 0.75]
    line = "memorizing: block 3 finds entries for 50.0%, half of their weight 512 or more back; gates 0.25 … 0.75"
    assert summary(figures) == line
    nothing = {"tokens": 4, "ages": [[0.0] * AGES], "scores": [0.0], "found": [0.0]}
    assert summary(search_figures([nothing], [3], [[0.5]])) == "memorizing: block 3 finds nothing; gates 0.50 … 0.50"
