"""What is reported of memorizing attention: against keys and queries, one by one."""

import json
from collections import Counter

import numpy as np
import pytest

from stages.diagnostics.memorizing import AGES, ANGLES, MemorizingProbe
from stages.models.config import parse_model
from tests.stages.diagnostics.contract import CONTEXT, TOKENS, AttentionProbeContract, opened

CHOSEN = {"name": "memorizing", "long_length": 12, "neighbors": 3, "layers": [2]}


class TestMemorizing(AttentionProbeContract):
    registered_as = "memorizing"
    kind, attention = MemorizingProbe, CHOSEN

    def test_it_counts_what_searches_find(self, probe, model):
        found, layer = [], model.backbone.blocks[1].attention
        hook = layer.search.register_forward_hook(lambda *call: found.append(call[2]))
        (seen,) = self.seen(probe, model, [TOKENS])
        hook.remove()
        gates, scales = layer.gates().tolist(), layer.scales().tolist()
        by_age, column, best, cosines = Counter(), [], [], []
        for one in found:
            for query in range(one.read.shape[2]):
                heaviest = (0.0, 0)
                for head in range(2):
                    weights, ages = (
                        one.weights[0, head, query].tolist(),
                        one.ages[0, head, query].tolist(),
                    )
                    scores = one.scores[0, head, query].tolist()
                    for weight, age in zip(weights, ages, strict=True):
                        by_age[age.bit_length() - 1] += weight
                    if weights:
                        at = int(np.argmax(weights))
                        best.append(scores[at])
                        cosines.append(scores[at] / scales[head])
                        heaviest = max(heaviest, (gates[head] * weights[at], ages[at]))
                column.append(heaviest)
        (figures,) = probe.metrics([json.loads(json.dumps(seen.record))])["blocks"]
        assert figures["block"] == 2
        assert figures["gates"] == pytest.approx(gates)
        assert figures["found"] == pytest.approx((TOKENS - CONTEXT) / TOKENS)
        assert figures["score"] == pytest.approx(np.mean(best), rel=1e-5)
        shares = np.histogram(cosines, ANGLES, (-1, 1))[0] / len(cosines)
        np.testing.assert_allclose(figures["by_cosine"], shares, atol=1.5 / len(cosines))
        assert sum(figures["by_cosine"]) == pytest.approx(1)
        total = sum(by_age.values())
        for age, share in figures["by_age"]:
            assert share == pytest.approx(by_age[age.bit_length() - 1] / total, abs=1e-6)
        np.testing.assert_allclose(
            seen.columns["memory_weight"], [weight for weight, _ in column], rtol=1e-5
        )
        assert seen.columns["memory_age"].tolist() == [age for _, age in column]


@pytest.mark.parametrize("backbone", ["transformer", "transformer-xl"])
def test_other_models_have_no_probe(backbone):
    assert (
        opened(
            MemorizingProbe,
            parse_model({"width": 8, "heads": 2, "backbone": backbone}).sized(11, CONTEXT),
        )
        is None
    )


def test_a_line_says_how_far_back_memory_is_read():
    ages = [0.0] * AGES
    ages[3], ages[9] = 1.0, 3.0
    sums = {"ages": ages, "cosines": [4.0] + [0.0] * (ANGLES - 1), "score": 12.0, "found": 4.0}
    record = {"tokens": 4, "layers": [sums], "constants": [{"gates": [0.25, 0.75]}]}
    figures = MemorizingProbe((3,)).metrics([record])
    assert figures["blocks"][0]["by_age"][9] == [512, 0.75]
    line = "memorizing: block 3 finds entries for 50.0%, half of their weight 512 or more back; gates 0.25 … 0.75"
    assert MemorizingProbe.summary(figures) == line
    sums = {"ages": [0.0] * AGES, "cosines": [0.0] * ANGLES, "score": 0.0, "found": 0.0}
    nothing = {"tokens": 4, "layers": [sums], "constants": [{"gates": [0.5]}]}
    assert (
        MemorizingProbe.summary(MemorizingProbe((3,)).metrics([nothing]))
        == "memorizing: block 3 finds nothing; gates 0.50 … 0.50"
    )


def test_charts_show_ages_and_cosines():
    metrics = {
        "split": "test",
        "memorizing": {
            "blocks": [
                {
                    "block": 3,
                    "gates": [0.5],
                    "found": 1.0,
                    "score": 6.0,
                    "by_age": [[1, 0.25], [2, 0.75]],
                    "by_cosine": [0.0] * 29 + [1.0] + [0.0] * 10,
                },
                {
                    "block": 4,
                    "gates": [0.5],
                    "found": 0.0,
                    "score": None,
                    "by_age": [],
                    "by_cosine": [],
                },
            ]
        },
    }
    ages, cosines = MemorizingProbe.charts(metrics, {})
    assert ages.plot.lines[0].points == [(1, 0.25), (2, 0.75)]
    assert cosines.plot.mean == pytest.approx(0.475)
    assert [row for row in cosines.plot.numbers[1:] if row[-1]] == [
        ("block 3", pytest.approx(0.45), 0.5, 1.0)
    ]
    assert MemorizingProbe.charts({"split": "test", "memorizing": None}, {}) == []
