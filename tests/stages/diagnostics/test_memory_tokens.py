"""What is reported of memory tokens: against attention weights of a slow network, segment by
segment.
"""

import json

import numpy as np
import pytest
import torch

from stages.diagnostics.memory_tokens import PARTS, MemoryTokensProbe
from stages.models.config import parse_model
from stages.models.language_model import LanguageModel
from tests.oracles.memory_tokens import memory_transformer
from tests.oracles.transformer_xl import Shape
from tests.stages.diagnostics.contract import CONTEXT, TOKENS, ProbeContract, opened

M = 3


class TestMemoryTokens(ProbeContract):
    registered_as = "memory_tokens"

    @pytest.fixture(params=["shared", "controller", "bottleneck"])
    def model(self, request):
        torch.manual_seed(0)
        sizes = {
            "width": 8,
            "layers": 2,
            "heads": 2,
            "ffn_width": 8,
            "mem_length": 4,
            "activation": "relu",
        }
        chosen = {
            "backbone": "memory-transformer",
            "memory_tokens": M,
            "memory_rows": request.param,
        }
        model = LanguageModel(parse_model(sizes | chosen).sized(11, CONTEXT)).eval()
        for parameter in model.backbone.parameters():
            parameter.data += 0.3 * torch.randn_like(parameter)
        return model

    @pytest.fixture
    def probe(self, model):
        return opened(MemoryTokensProbe, model.config)

    def reader(self, start, stop):
        return None

    def test_its_maps_are_those_of_the_attention(self, probe, model):
        (seen,) = self.seen(probe, model, [TOKENS])
        figures = probe.metrics([json.loads(json.dumps(seen.record))])["blocks"]
        ids = np.random.default_rng(1).integers(0, 11, TOKENS)
        stream = torch.from_numpy(np.concatenate(([0], ids[:-1])))[None]
        backbone, kind = model.backbone, model.config.memory_rows
        named = [
            {
                part: {n: p.detach().double().numpy() for n, p in module.named_parameters()}
                for part, module in rows
            }
            for rows in ((("tokens", b.tokens), ("memory", b.rows)) for b in backbone.blocks)
        ]
        last = {n: p.detach().double().numpy() for n, p in backbone.norm.named_parameters()}
        embedded = model.vocabulary.embed(stream)[0].detach().double().numpy()
        leading = backbone.leading.detach().double().numpy()
        looks = memory_transformer(embedded, leading, named, last, Shape(2, CONTEXT, 4), kind)[3]
        for number, one in enumerate(figures):
            of_block = looks[number::2]
            by_token = [by.mean(0) for _, by in of_block]
            to_memory = np.concatenate([by[:, :M] for by in by_token])
            own = np.concatenate([by[:, -CONTEXT:].sum(1) for by in by_token])
            assert one["memory"] == pytest.approx(to_memory.sum(1).mean(), rel=1e-4)
            assert one["segment"] == pytest.approx(own.mean(), rel=1e-4)
            assert one["cached"] == pytest.approx(1 - one["memory"] - one["segment"], abs=1e-6)
            by_place = np.mean(
                [by[:, :M] for by in by_token], 0
            )  # a segment of 8 has every second part
            np.testing.assert_allclose(np.array(one["read_by"])[:, ::2], by_place.T, rtol=1e-4)
            assert not np.array(one["read_by"])[:, 1::2].any()
            if kind != "bottleneck" and number == 1:
                assert one["reads"] is None
                continue
            of_memory = [by.mean(0) for by, _ in of_block]
            np.testing.assert_allclose(
                np.array(one["reads"])[:, 0],
                np.mean([by[:, :M].sum(1) for by in of_memory], 0),
                rtol=1e-4,
            )
            # Four positions lie before all but the first segment, each in a part of its own.
            before = np.sum([by[:, M:] for by in of_memory[1:]], 0) / len(of_memory)
            np.testing.assert_allclose(np.array(one["reads"])[:, 1:5], before, rtol=1e-4)
            assert len(one["reads"][0]) == 1 + PARTS
        shares = seen.columns["memory_tokens_attention"].mean()
        assert float(shares) == pytest.approx(np.mean([one["memory"] for one in figures]), rel=1e-4)


@pytest.mark.parametrize("changes", [{"backbone": "transformer-xl"}, {"memory_tokens": 0}])
def test_other_models_have_no_probe(changes):
    chosen = {"backbone": "memory-transformer", "width": 8, "heads": 2, **changes}
    assert opened(MemoryTokensProbe, parse_model(chosen).sized(11, CONTEXT)) is None
