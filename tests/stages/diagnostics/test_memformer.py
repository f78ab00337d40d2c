"""What is reported of slots: against attention, slot by slot and segment by segment."""

import json

import numpy as np
import pytest
import torch

from stages.diagnostics.memformer import BINS, MemformerProbe
from stages.models.config import parse_model
from stages.models.language_model import LanguageModel
from tests.stages.diagnostics.contract import CONTEXT, TOKENS, ProbeContract, opened

SLOTS, HEADS, WIDTH = 3, 2, 8
MODEL = {"backbone": "memformer", "width": WIDTH, "heads": HEADS, "ffn_width": 8, "slots": SLOTS}


class TestMemformer(ProbeContract):
    registered_as = "memformer"

    @pytest.fixture
    def model(self):
        torch.manual_seed(0)
        model = LanguageModel(parse_model(MODEL).sized(11, CONTEXT)).eval()
        for parameter in model.backbone.parameters():
            parameter.data += 0.3 * torch.randn_like(parameter)
        return model

    @pytest.fixture
    def probe(self, model):
        return opened(MemformerProbe, model.config)

    def reader(self, start, stop):
        return None

    def test_it_reports_what_slots_keep_of_themselves(self, probe, model):
        given = []
        handle = model.backbone.writer.register_forward_pre_hook(lambda _, read: given.append(read))
        (seen,) = self.seen(probe, model, [TOKENS])
        handle.remove()
        writer, shares = model.backbone.writer, []
        weights = {name: p.detach().double().numpy() for name, p in writer.named_parameters()}
        for memory, read in given:
            memory, read = memory[0].double().numpy(), read[0].double().numpy()
            for slot in memory:
                by_head = []
                for part in (slice(0, 4), slice(4, 8)):
                    query = (weights["query.weight"] @ slot)[part]
                    scores = [query @ (weights["key.weight"] @ row)[part] for row in (slot, *read)]
                    exp = np.exp((np.array(scores) - max(scores)) / (2 * writer.temperature))
                    by_head.append(exp[0] / exp.sum())
                shares.append(np.mean(by_head))
        figures = probe.metrics([json.loads(json.dumps(seen.record))])
        assert (figures["writes"], len(shares)) == (
            TOKENS // CONTEXT - 1,
            SLOTS * (TOKENS // CONTEXT - 1),
        )
        assert figures["self_attention"] == pytest.approx(np.mean(shares), rel=1e-5)
        assert figures["kept"] == pytest.approx(np.mean(np.array(shares) >= 0.5))
        assert sum(figures["histogram"]["slots"]) == len(shares)


def test_where_nothing_was_written_there_are_no_figures():
    sums = {"counts": [0] * BINS, "total": 0.0, "writes": 0}
    figures = MemformerProbe((1,)).metrics([{"tokens": 2, "layers": [sums]}])
    assert (
        figures["kept"] is None
        and MemformerProbe.charts({"split": "test", "memformer": figures}, {}) == []
    )
    assert MemformerProbe.summary(figures) == "memformer: no segment was written"


@pytest.mark.parametrize("changes", [{"backbone": "transformer-xl"}, {"slots": 0}])
def test_other_models_have_no_probe(changes):
    chosen = {"backbone": "memformer", "width": 8, "heads": 2, **changes}
    assert opened(MemformerProbe, parse_model(chosen).sized(11, CONTEXT)) is None
