"""What is seen of a gate, block after block, and what reports make of it."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.diagnostics.gate import BINS, GROUPS, GateProbe, first_matches, grouped, histogram
from stages.encoding.probe import ScoredBlock
from stages.models.backbones.window_configs import TransformerConfig
from stages.models.language_model import LanguageModel
from stages.retrieval.gate_reader import GateReader

TOKENS, WIDTH, STORED = 30, 8, 5


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    torch.manual_seed(0)
    sizes = {"vocab_size": 11, "layers": 1, "width": WIDTH, "heads": 2, "max_positions": 8}
    model = LanguageModel(TransformerConfig(gate="vector", **sizes)).eval()
    torch.nn.init.normal_(model.gate.weight)
    return model


class Block:
    """As much of an encoded block as a gate needs."""

    def __init__(self, start, hidden, targets):
        self.start, self.stop, self.hidden, self.targets = (
            start,
            start + len(targets),
            hidden,
            targets,
        )


def watched(model, numbers, cuts, counted=None, passage=range(7, 19)):
    """The record of a range that starts at token 5, seen in blocks."""
    random = torch.Generator().manual_seed(1)
    hidden = torch.randn(TOKENS, WIDTH, generator=random)
    targets = torch.randint(0, 11, (TOKENS,), generator=random)
    neighbors = torch.randint(-1, 11, (TOKENS, STORED), generator=random)
    reader = GateReader(neighbors.numpy, 5, numbers[0])
    watch = GateProbe(numbers, passage, None, "test").watch(model, reader, 5, counted)
    gates, log_ps = [], []
    for a, b in zip([0, *cuts], [*cuts, TOKENS], strict=True):
        block = Block(5 + a, hidden[a:b], targets[a:b])
        read = reader.apply(model, block)
        log_p, _ = model.log_prob(read, block.targets)
        watch.observe(ScoredBlock(model, block, read, log_p))
        gates.append(reader.gated.gate)
        log_ps.append(log_p)
    seen = watch.observation()
    gate = torch.cat(gates)
    torch.testing.assert_close(
        seen.columns["gate"], (gate if counted is None else gate[counted]).mean(1)
    )
    return seen.record | seen.record["layers"][0], (
        hidden,
        targets,
        neighbors,
        gate,
        torch.cat(log_ps),
    )


@settings(max_examples=25)  # as of the other cuts of a stream: each example reads a model twice
@given(
    st.sets(st.integers(1, TOKENS - 1), max_size=4).map(sorted),
    st.integers(1, STORED),
    st.booleans(),
)
def test_blocks_do_not_matter(model, cuts, number, some):
    counted = torch.arange(TOKENS) % 3 == 0 if some else None
    numbers = tuple(dict.fromkeys((number, 0, STORED)))
    whole, _ = watched(model, numbers, [], counted)
    parts, _ = watched(model, numbers, cuts, counted)
    assert parts["nll"] == pytest.approx(whole["nll"], rel=1e-6)
    assert parts["sum"] == pytest.approx(whole["sum"], rel=1e-6)
    for name in ("tokens", "matches"):
        assert parts[name] == whole[name]
    for name in (
        "token_histogram",
        "value_histogram",
    ):  # a gate at the edge of a bin may fall on either side of it
        assert sum(parts[name]) == sum(whole[name])
        assert np.abs(np.subtract(parts[name], whole[name])).sum() <= 2
    for one, other in zip(parts["passage"], whole["passage"], strict=True):
        assert one["gate"] == pytest.approx(other["gate"], abs=2e-6)
        assert (one["token"], one["neighbors"]) == (other["token"], other["neighbors"])


def test_a_record_holds_what_a_loop_finds(model):
    counted = torch.arange(TOKENS) % 2 == 0
    record, (hidden, targets, neighbors, gate, log_p) = watched(model, (2, 0, 4), [11], counted)

    rows = [row for row in range(TOKENS) if counted[row]]
    assert record["tokens"] == len(rows)
    assert record["sum"] == pytest.approx(sum(float(gate[row].mean()) for row in rows), rel=1e-6)
    values = np.histogram(gate[counted].numpy(), np.arange(BINS + 1, dtype=np.float32) / BINS)[0]
    assert record["value_histogram"] == values.tolist()
    right = {
        k: sum(int(targets[row]) in neighbors[row, :k].tolist() for row in rows)
        for k in (1, 2, 4, 5)
    }
    assert record["matches"] == list(right.values()) and record["stored"] == STORED
    with torch.no_grad():
        plain, _ = model.log_prob(hidden, targets)
        four, _ = model.log_prob(model.gated(hidden, neighbors[:, :4]).hidden, targets)
    wanted = [-float(one[counted].double().sum()) for one in (log_p, plain, four)]
    assert record["nll"] == pytest.approx(wanted, rel=1e-6)
    shown = record["passage"]
    assert [token["token"] for token in shown] == targets[2:14].tolist()
    assert [token["neighbors"] for token in shown] == neighbors[2:14, :2].tolist()
    np.testing.assert_allclose([token["gate"] for token in shown], gate[2:14], atol=1e-6)
    np.testing.assert_allclose(
        [token["probability"] for token in shown], log_p[2:14].exp(), rtol=1e-6
    )
    json.dumps(record)


@pytest.mark.parametrize("width", [1, 31, 32, 33, 100, 512])
def test_at_most_so_many_groups_cover_every_dimension(width):
    gate = torch.rand(3, width)
    groups = grouped(gate)
    size = math.ceil(width / GROUPS)
    assert groups.shape[1] == math.ceil(width / size) <= GROUPS
    for number, group in enumerate(groups.T):
        np.testing.assert_allclose(
            group, gate[:, number * size : (number + 1) * size].mean(1), rtol=1e-5
        )


def test_a_gate_at_either_end_is_counted():
    counts = histogram(torch.tensor([[0.0, 1.0], [0.999999, 0.02]]))
    assert counts.tolist() == [1, 1, *[0] * (BINS - 3), 2]


def test_hits_are_the_first_of_several():
    neighbors = torch.tensor([[3, 5, 5], [5, 5, 5], [-1, -1, -1], [1, 2, 5]])
    assert first_matches(neighbors, torch.tensor([5, 5, 5, 9])).tolist() == [1, 0, 3, 3]


def probe(*numbers):
    return GateProbe(numbers, range(4), None, "test")


def record(tokens, nll):
    histogram = [tokens, *[0] * (BINS - 1)]
    counts = {
        "token_histogram": histogram,
        "value_histogram": histogram,
        "matches": [1, 2],
        "nll": nll,
    }
    return {
        "tokens": tokens,
        "layers": [{"sum": 0.5 * tokens, **counts}],
        "passage": [],
        "stored": 2,
    }


def test_records_are_added_up():
    figures = probe(2, 1, 0).metrics([record(3, [6.0, 9.0, 8.0]), record(5, [10.0, None, 8.0])])

    assert (figures["neighbors"], figures["mean"]) == (2, 0.5)
    assert figures["histogram"]["tokens"][0] == 8
    assert figures["neighbors_right"] == {"1": 2 / 8, "2": 4 / 8}
    assert figures["by_neighbors"] == [
        {"neighbors": 0, "perplexity": pytest.approx(math.exp(2)), "nll": 16.0},
        {"neighbors": 1, "perplexity": None, "nll": None},
        {"neighbors": 2, "perplexity": pytest.approx(math.exp(2)), "nll": 16.0},
    ]
    assert probe(2, 1, 0).curves(figures, "plain")[0]["points"] == figures["by_neighbors"]


def test_one_number_of_neighbours_is_no_curve():
    assert probe(2, 0).curves(probe(2, 0).metrics([record(3, [6.0, 7.0])]), "plain") == []
