"""What is reported of an SRU++: gates, computed position by position in float64."""

import json

import numpy as np
import pytest
import torch

from stages.diagnostics.sru_plus_plus import SRUProbe
from stages.models.config import parse_model
from stages.models.language_model import LanguageModel
from tests.stages.diagnostics.contract import CONTEXT, TOKENS, ProbeContract, opened


class TestCells(ProbeContract):
    registered_as = "sru_plus_plus"

    @pytest.fixture
    def model(self) -> LanguageModel:
        torch.manual_seed(0)
        sizes = {
            "backbone": "sru++",
            "width": 8,
            "layers": 3,
            "mem_length": 4,
            "attention_every": 2,
        }
        model = LanguageModel(parse_model(sizes).sized(11, CONTEXT)).eval()
        for parameter in model.backbone.parameters():
            parameter.data += 0.5 * torch.randn_like(parameter)
        return model

    @pytest.fixture
    def probe(self, model: LanguageModel) -> SRUProbe | None:
        return opened(SRUProbe, model.config)

    def reader(self, start: int, stop: int) -> None:
        return None

    def test_it_counts_the_gates_of_each_block(self, probe, model):
        layer, terms = model.backbone.blocks[1], []
        hook = layer.projection.register_forward_hook(
            lambda *call: terms.append(call[2].detach()[0].double().numpy())
        )
        (seen,) = self.seen(probe, model, [TOKENS])
        hook.remove()
        v_f, b_f, v_r, b_r = (
            part.detach().double().numpy()
            for part in (
                layer.carry_forget,
                layer.forget_bias,
                layer.carry_highway,
                layer.highway_bias,
            )
        )
        c, kept, passed = np.zeros(8), [], []
        for term in np.concatenate(terms[::2]):  # the probe lets each pass run once more
            u, z, s = np.split(term, 3)
            f = 1 / (1 + np.exp(-(z + b_f + v_f * c)))
            passed.append((1 / (1 + np.exp(-(s + b_r + v_r * c)))).mean())
            kept.append(f.mean())
            c = f * c + (1 - f) * u
        blocks = probe.metrics([json.loads(json.dumps(seen.record))])["blocks"]
        assert ([one["block"] for one in blocks], len(passed)) == ([1, 2, 3], TOKENS)
        assert [one["alpha"] for one in blocks] == [
            None,
            pytest.approx(float(layer.projection.alpha.detach())),
            None,
        ]
        assert blocks[1]["highway"] == pytest.approx(np.mean(passed), rel=1e-5)
        assert blocks[1]["forget"] == pytest.approx(np.mean(kept), rel=1e-5)
        assert blocks[1]["histogram"] == [
            np.mean([int(one * 20) == part for one in passed]) for part in range(20)
        ]

    def test_of_others_it_has_nothing_to_say(self):
        assert (
            opened(SRUProbe, parse_model({"backbone": "lstm", "width": 8}).sized(11, CONTEXT))
            is None
        )
