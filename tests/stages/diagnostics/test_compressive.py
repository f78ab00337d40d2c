"""What is reported of compressive attention: against its weights, position by position."""

import json
from typing import ClassVar

import numpy as np
import pytest
import torch

from stages.diagnostics.compressive import PARTS, PLACES, CompressiveProbe
from stages.models.config import parse_model
from tests.oracles.compressive import Shape, compressive, reconstruction_loss
from tests.stages.diagnostics.contract import CONTEXT, TOKENS, AttentionProbeContract, opened

CHOSEN = {"name": "compressive", "long_length": 3, "rate": 2}


class TestCompressive(AttentionProbeContract):
    registered_as = "compressive"
    kind, attention = CompressiveProbe, CHOSEN
    sizes: ClassVar = {"mem_length": 4, "activation": "relu"}

    def test_it_reports_the_loss_of_every_segment_and_where_attention_goes(self, probe, model):
        (seen,) = self.seen(probe, model, [TOKENS])
        figures = probe.metrics([json.loads(json.dumps(seen.record))])["blocks"]
        ids = np.random.default_rng(1).integers(0, 11, TOKENS)
        stream = torch.from_numpy(np.concatenate(([0], ids[:-1])))[None]
        embedded = model.vocabulary.embed(stream)[0].detach().double().numpy()
        blocks = [
            {n: p.detach().double().numpy() for n, p in b.named_parameters()}
            for b in model.backbone.blocks
        ]
        last = {n: p.detach().double().numpy() for n, p in model.backbone.norm.named_parameters()}
        shape = Shape(2, CONTEXT, 4, 3, 2)
        _, inputs = compressive(embedded, blocks, last, shape, "conv")
        for one, w, x in zip(figures, blocks, inputs, strict=True):
            losses = [reconstruction_loss(w, x, n, shape, "conv") for n in range(TOKENS // CONTEXT)]
            assert one["loss"] == pytest.approx(np.mean(losses), rel=1e-4)
            assert one["slots"] + one["cached"] + one["segment"] == pytest.approx(1)
            assert one["slots"] == pytest.approx(
                sum(one["by_age"][place] for place in PLACES[:PARTS])
            )
        # The first segment sees neither slots nor cached positions, the second no more than two
        # slots.
        assert seen.columns["slots_attention"][:CONTEXT].tolist() == [0] * CONTEXT
        assert (seen.columns["slots_attention"][CONTEXT:] > 0).all()
        assert float(seen.columns["slots_attention"].mean()) == pytest.approx(
            np.mean([one["slots"] for one in figures])
        )


@pytest.mark.parametrize("changes", [{}, {"backbone": "transformer", "mem_length": None}])
def test_other_models_have_no_probe(changes):
    other = {name: value for name, value in changes.items() if value is not None}
    sizes: ClassVar = {"width": 8, "heads": 2, "backbone": "transformer-xl"}
    assert opened(CompressiveProbe, parse_model({**sizes, **other}).sized(11, CONTEXT)) is None


def test_where_nothing_was_compressed_there_is_no_loss():
    record = {
        "tokens": 2,
        "layers": [{"attention": [0.0] * (2 * PARTS) + [2.0], "loss": 0.0, "borders": 0}],
    }
    figures = CompressiveProbe((2,)).metrics([record])
    assert figures["blocks"][0]["loss"] is None
    assert (
        CompressiveProbe.summary(figures)
        == "compressive: attention to slots 0.0% in block 2; compression loss none"
    )
