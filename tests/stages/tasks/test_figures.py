"""Figures of a stream, beside their definitions written out in loops."""

import numpy as np
import pytest

from stages.errors import ArtifactError
from stages.tasks.figures import stream_figures
from stages.tasks.plan import StreamPlan, matrices, perplexities


@pytest.mark.parametrize("tasks", [2, 3, 7])
def test_figures_are_what_the_papers_define(tasks: int) -> None:
    scores = np.random.default_rng(tasks).random((tasks + 1, tasks))
    found = stream_figures(scores, range(tasks + 1))
    R = {(i, j): scores[i, j - 1] for i in range(tasks + 1) for j in range(1, tasks + 1)}
    K = tasks
    forgotten = [max(R[i, j] for i in range(j, K)) - R[K, j] for j in range(1, K)]
    assert found["forgetting"] == pytest.approx(sum(forgotten) / (K - 1))
    backward, forward = (
        [R[K, j] - R[j, j] for j in range(1, K)],
        [R[j - 1, j] - R[0, j] for j in range(2, K + 1)],
    )
    assert found["backward_transfer"] == pytest.approx(sum(backward) / (K - 1))
    assert found["forward_transfer"] == pytest.approx(sum(forward) / (K - 1))
    assert found["averages"] == pytest.approx(
        [sum(R[i, j] for j in range(1, i + 1)) / i for i in range(1, K + 1)]
    )
    assert found["average"] == found["averages"][-1]


def test_one_task_has_no_transfer() -> None:
    found = stream_figures(np.array([[0.5], [1.0]]), [0, 1])
    assert (
        found["average"] == 1
        and found["forgetting"] is found["backward_transfer"] is found["forward_transfer"]
    )
    assert found["forgetting"] is None


def test_ranges_cover_each_test_once_a_place() -> None:
    plan = StreamPlan.of(("a", "b"), (0, 1, 2), (3, 1025), (512, 8))
    correct = {shard.key: shard.stop - shard.start for shard in plan.shards}
    assert len(correct) == 3 * (1 + 3) + 3 * (1 + 129)
    assert (matrices(plan, correct) == 1).all()


def test_nats_beyond_any_perplexity_are_refused() -> None:
    plan = StreamPlan.of(("a",), (1,), (2,), (512,))
    (key,) = (shard.key for shard in plan.shards)
    assert perplexities(plan, {key: 7000.0}, {key: 10}).max() < np.inf
    with pytest.raises(ArtifactError):
        perplexities(plan, {key: 7100.0}, {key: 10})
