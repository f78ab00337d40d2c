from types import SimpleNamespace

import numpy as np
import pytest
import torch

from stages.diagnostics.gate import GateProbe
from stages.models.backbones.window_configs import TransformerConfig
from stages.models.language_model import LanguageModel
from stages.retrieval.gate_reader import GateReader
from tests.stages.diagnostics.contract import TOKENS, ProbeContract

VOCABULARY, NEIGHBORS = 11, np.random.default_rng(2).integers(-1, 11, (TOKENS, 5))


class TestGate(ProbeContract):
    registered_as = "gate"

    @pytest.fixture
    def probe(self, monkeypatch: pytest.MonkeyPatch) -> GateProbe:
        labels = SimpleNamespace(label=str)
        monkeypatch.setattr("stages.diagnostics.gate.token_text", lambda tokens: labels)
        read = {"gate_neighbors": None, "tokens": None}
        opened = GateProbe.open(read, {"gate_k": (3, 0, 5), "passage": "4:12"}, "test")
        assert opened is not None
        return opened

    @pytest.fixture
    def model(self) -> LanguageModel:
        torch.manual_seed(0)
        sizes = {"vocab_size": VOCABULARY, "layers": 1, "width": 8, "heads": 2, "max_positions": 8}
        model = LanguageModel(TransformerConfig(gate="vector", **sizes)).eval()
        torch.nn.init.normal_(model.gate.weight)
        return model

    def reader(self, start: int, stop: int) -> GateReader:
        return GateReader(lambda: NEIGHBORS[start:stop], start, 3)


def test_a_model_without_a_gate_has_no_probe():
    assert GateProbe.open({}, {"gate_k": None, "passage": None}, "test") is None
