"""What is reported of a MemSizer: the weights of its slots, in float64."""

import json

import numpy as np
import pytest
import torch

from stages.diagnostics.memsizer import MemSizerProbe
from stages.models.config import parse_model
from stages.models.language_model import LanguageModel
from tests.stages.diagnostics.contract import CONTEXT, TOKENS, ProbeContract, opened


class TestMemSizer(ProbeContract):
    registered_as = "memsizer"

    @pytest.fixture
    def model(self) -> LanguageModel:
        torch.manual_seed(0)
        attention = {"name": "memsizer", "slots": 5, "layers": [1, 3]}
        sizes = {"backbone": "transformer", "width": 8, "layers": 3, "heads": 2}
        model = LanguageModel(
            parse_model(sizes | {"attention": attention}).sized(11, CONTEXT)
        ).eval()
        for parameter in model.backbone.parameters():
            parameter.data += 0.5 * torch.randn_like(parameter)
        return model

    @pytest.fixture
    def probe(self, model: LanguageModel) -> MemSizerProbe | None:
        return opened(MemSizerProbe, model.config)

    def reader(self, start: int, stop: int) -> None:
        return None

    def test_it_counts_the_slots_that_each_token_reads(self, probe, model):
        layer, scores = model.backbone.blocks[2].attention, []
        hook = layer.query.register_forward_hook(
            lambda *call: scores.append(call[2].detach().flatten(0, 1).double().numpy())
        )
        (seen,) = self.seen(probe, model, [TOKENS])
        hook.remove()
        weights = []
        for row in np.concatenate(scores[::2]).reshape(
            -1, 2, 5
        ):  # the probe computes each once more
            heads = [np.exp(one) / np.exp(one).sum() for one in row]
            weights.append((heads[0] + heads[1]) / 2)
        read = [np.exp(-sum(p * np.log(p) for p in one)) for one in weights]
        first, third = probe.metrics([json.loads(json.dumps(seen.record))])["blocks"]
        assert (first["block"], third["block"], third["slots"], len(read)) == (1, 3, 5, TOKENS)
        assert third["read"] == pytest.approx(np.mean(read), rel=1e-5)
        assert third["weights"] == pytest.approx(np.mean(weights, axis=0).tolist(), rel=1e-5)
        assert third["histogram"] == [
            np.mean([int(one / 5 * 20) == part for one in read]) for part in range(20)
        ]

    def test_of_others_it_has_nothing_to_say(self):
        assert opened(MemSizerProbe, parse_model({"width": 8}).sized(11, CONTEXT)) is None
