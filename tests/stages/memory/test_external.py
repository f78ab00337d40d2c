import math

import pytest
import torch

from stages.memory.external import (
    NearestRows,
    best_first,
    external_entries,
    scaled_dot,
    scores_from_distances,
)


def test_neighbours_become_cells_and_missing_ones_stay_missing():
    ids = torch.tensor([[2, 0], [1, -1]])
    scores = torch.tensor([[0.5, 0.1], [1.0, -math.inf]])
    entries = external_entries(NearestRows(ids, scores, torch.tensor([7, 8, 9, -1])))
    assert entries.values.tolist() == [[9, 7], [8, -1]]
    assert entries.scores.tolist() == [[0.5, pytest.approx(0.1)], [1.0, -math.inf]]


def test_a_missing_neighbour_has_no_score_in_either_metric():
    assert scores_from_distances(torch.tensor([1.0, math.inf]), "l2").tolist() == [-1.0, -math.inf]
    assert scores_from_distances(torch.tensor([1.0, -math.inf]), "ip").tolist() == [1.0, -math.inf]


def test_recomputed_scores_are_put_in_order_with_ties_as_they_stood():
    ids, scores = best_first(
        torch.tensor([[5, 6, 7, -1]]), torch.tensor([[1.0, 2.0, 1.0, -math.inf]])
    )
    assert ids.tolist() == [[6, 5, 7, -1]]
    assert scores.tolist() == [[2.0, 1.0, 1.0, -math.inf]]


def test_scaled_dot_divides_by_the_root_of_the_width():
    assert scaled_dot(torch.tensor([6.0]), 9).item() == 2.0
