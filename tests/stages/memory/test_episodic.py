"""Episodic memory: nothing is drawn before it is written, nothing written twice."""

import numpy as np
import pytest

from stages.memory.episodic import EpisodicMemory, draws_due


def test_an_example_is_written_once_and_with_the_probability() -> None:
    memory = EpisodicMemory()
    for task in range(3):
        memory.write(
            np.arange(task * 1000, task * 1000 + 2000), task, 0.25, np.random.default_rng(task)
        )
    assert len(set(memory.rows.tolist())) == len(memory)
    assert 0.2 < np.mean(memory.tasks == 0) * len(memory) / 2000 < 0.3


@pytest.mark.parametrize(("written", "count"), [(0, 3), (2, 3), (9, 3), (9, 9)])
def test_a_draw_has_rows_of_memory_each_once(written: int, count: int) -> None:
    memory = EpisodicMemory()
    memory.write(np.arange(100, 100 + written), 0, 1.0, np.random.default_rng(0))
    drawn = memory.draw(count, np.random.default_rng(1)).tolist()
    assert len(drawn) == len(set(drawn)) == min(count, written) and set(drawn) <= set(
        memory.rows.tolist()
    )


@pytest.mark.parametrize("every", [1, 7, 16, 40])
def test_draws_fall_due_at_every_multiple(every: int) -> None:
    read = range(0, 400, 16)
    assert sum(draws_due(before, before + 16, every) for before in read) == 400 // every


def test_a_document_that_an_update_reads_twice_is_written_once() -> None:
    memory = EpisodicMemory()
    memory.write(np.array([7, 3, 7, 1, 3]), 0, 1.0, np.random.default_rng(0))
    assert memory.rows.tolist() == [7, 3, 1] and memory.tasks.tolist() == [0, 0, 0]
