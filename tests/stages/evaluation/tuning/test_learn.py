import json
from pathlib import Path

import pytest
import torch

from stages.evaluation.figures.range_scores import RowSettings
from stages.evaluation.tuning import learn as learning
from stages.evaluation.tuning.learn import learn_weight, load_positions, positions_bytes, save_positions, with_learned
from stages.memory import weight_network
from stages.memory.readers.interpolate.reader import Interpolate
from stages.memory.weight_network import Positions
from stages.retrieval.grids import Point, ReadingGrid
from stages.retrieval.weight_inputs import CONTEXT, NEIGHBORS

INPUTS, N = len(CONTEXT) + len(NEIGHBORS), 600
SETTINGS = RowSettings([ReadingGrid(Interpolate(), (1.0,), (8,), (0.3,), off=0.0)], [Point(8, 1.0, 0.3)], [])


@pytest.fixture(autouse=True)
def short_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_network, "SHORTEST", 100)


def positions(right: float, wrong: float, seed: int = 0) -> Positions:
    """The model gives .1, the memory `right` where the first input is positive, else `wrong`."""
    inputs = torch.randn(N, INPUTS, generator=torch.Generator().manual_seed(seed)).double()
    memory = torch.where(inputs[:, 0] > 0, right, wrong).double().log()
    return Positions(inputs, torch.full((N,), 0.1).double().log(), memory)


def saved(folder: Path, all_of_them: Positions) -> list[Path]:
    """In two files."""
    files = [folder / "0.npz", folder / "1.npz"]
    for file, rows in zip(files, (torch.arange(250), torch.arange(250, N)), strict=True):
        save_positions(file, all_of_them.taken(rows))
    return files


def test_what_is_kept_is_what_was_given(tmp_path):
    given = positions(0.9, 0.0)
    found = load_positions(files := saved(tmp_path, given))
    for name, part in vars(given).items():
        torch.testing.assert_close(getattr(found, name), part, atol=1e-6, rtol=1e-6)
    size = sum(file.stat().st_size for file in files)
    assert positions_bytes(N) <= size <= positions_bytes(N) + 4096


def test_what_gains_for_sure_is_read(tmp_path):
    record = json.loads(json.dumps(learn_weight(saved(tmp_path, positions(0.9, 0.001)), 0.3, 0.0, 1.0)))
    settings = with_learned(SETTINGS, record)
    assert settings.network is not None and settings.points == (Point(8, 1.0, 0.3),)
    assert settings.gains is not None and len(settings.thresholds) == len(learning.SHARES) and settings.gate is None


def test_half_of_the_searches_open_the_gate_for_half_of_the_contexts(tmp_path):
    given = positions(0.9, 0.001)
    settings = with_learned(SETTINGS, learn_weight(saved(tmp_path, given), 0.3, 0.0, 0.5))
    assert settings.gate is not None and settings.gate.threshold == settings.thresholds[-1]
    opens = settings.gate.opens(given.inputs[:, : len(CONTEXT)].float())
    assert int(opens.sum()) == pytest.approx(N / 2, abs=2)
    assert (given.inputs[opens, 0] > 0).double().mean() > 0.9


@pytest.mark.parametrize("threads", [1, 2])
def test_it_is_learned_in_one_thread(tmp_path, monkeypatch, threads):
    """Sums of many threads differ in their last digits, and workers have other numbers of them."""
    seen, learn = [], learning.learn
    monkeypatch.setattr(learning, "learn", lambda *given: seen.append(torch.get_num_threads()) or learn(*given))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        learn_weight(saved(tmp_path, positions(0.9, 0.001)), 0.3, 0.0, 1.0)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert seen == [1]


def test_no_memory_is_read_that_never_helps(tmp_path):
    record = learn_weight(saved(tmp_path, positions(0.0, 0.0)), 0.3, 0.0, 0.5)
    settings = with_learned(SETTINGS, record)
    assert record["weight"] == 0.0 and record["gate"] is None
    assert settings.network is None and settings.gate is None and settings.points == (Point(8, 1.0, 0.0),)


def test_where_nothing_is_learned_settings_stay():
    assert with_learned(SETTINGS, None) is SETTINGS
