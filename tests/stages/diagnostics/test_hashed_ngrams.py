"""What is reported of hashed n-grams: gates, counted one by one."""

import json

import pytest
import torch

from stages.diagnostics.hashed_ngrams import NgramsProbe
from stages.models.config import parse_model
from stages.models.language_model import LanguageModel
from tests.stages.diagnostics.contract import CONTEXT, ProbeContract, opened


class TestNgrams(ProbeContract):
    registered_as = "hashed_ngrams"

    @pytest.fixture(params=["transformer", "transformer-xl"])
    def model(self, request) -> LanguageModel:
        torch.manual_seed(0)
        lookup = {"name": "hashed-ngrams", "slots": 40, "heads": 2, "layers": [1, 3]}
        sizes = {"backbone": request.param, "width": 8, "layers": 3, "heads": 2}
        model = LanguageModel(parse_model(sizes | {"lookup": lookup}).sized(11, CONTEXT)).eval()
        for parameter in model.backbone.parameters():
            parameter.data += 0.5 * torch.randn_like(parameter)
        return model

    @pytest.fixture
    def probe(self, model) -> NgramsProbe | None:
        return opened(NgramsProbe, model.config)

    def reader(self, start: int, stop: int) -> None:
        return None

    def test_it_counts_the_gates_of_each_block(self, probe, model):
        gates = []
        hook = model.backbone.blocks[2].lookup.gate.register_forward_hook(
            lambda *call: gates.append(call[2].detach())
        )
        (seen,) = self.seen(probe, model, [24])
        hook.remove()
        found = torch.cat([one.flatten() for one in gates])
        first, second = probe.metrics([json.loads(json.dumps(seen.record))])["blocks"]
        assert (first["block"], second["block"], len(found)) == (1, 3, 24)
        assert second["gate"] == pytest.approx(float(found.mean()), rel=1e-5)
        assert second["histogram"] == [
            float(((found * 20).long() == part).sum()) / 24 for part in range(20)
        ]
        assert len({*found.tolist()}) > 10

    def test_of_others_it_has_nothing_to_say(self):
        assert opened(NgramsProbe, parse_model({"width": 8}).sized(11, CONTEXT)) is None
