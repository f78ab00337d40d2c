"""Made tasks are what they say: whoever can look at all of a stream answers rightly, and others as often as is said."""

import pytest
import torch

from tests.stages.models.layers.made_tasks import (
    QUESTIONS,
    beginnings,
    commoner,
    counting,
    look_up,
    sorted_by_counting,
    sorting,
)


def test_the_answer_is_what_was_commoner_from_the_beginning_on():
    task = commoner(20, 6, 256, 64, 0)
    assert task.asked.sum() == 20 * 4 * QUESTIONS
    assert (counting(task, 6, 256) == 1).all()
    assert task.tokens.max() == 6
    assert (task.tokens == 6).sum() == 20 * 4 * QUESTIONS


def test_who_counts_the_last_tokens_alone_errs_the_more_often_the_fewer_they_are():
    task = commoner(60, 12, 1024, 64, 1)
    late = counting(task, 12, 1024).view(60, -1).shape[1] * 3 // 4
    shares = [float(counting(task, 12, last).view(60, -1)[:, late:].mean()) for last in (16, 128, 512, 1024)]
    assert shares == sorted(shares)
    assert shares[0] < 0.75 < shares[2] < 0.99 < shares[3]


def test_answers_are_first_or_second_equally_often():
    task = commoner(100, 6, 128, 64, 2)
    first = torch.roll(task.tokens, 2, 1)[task.asked] == task.tokens[task.asked]
    assert float(first.float().mean()) == pytest.approx(0.5, abs=0.08)


def test_a_beginning_is_asked_for_at_the_end():
    task = beginnings(50, 8, 49, 8, 0)
    assert task.asked.sum(1).tolist() == [1] * 50
    for row in task.tokens:
        assert {int(token) for token in row[:8] if token < 8} <= {int(row[-1])}


def test_what_is_looked_up_was_stated_as_far_back_as_is_said():
    task, back = look_up(20, 8, 4, 256, 0)
    assert (task.asked == (back > 0)).all()
    assert task.asked.sum() > 20 * 20
    for row, place in task.asked.nonzero().tolist():
        told, asked = task.tokens[row], int(task.tokens[row, place])
        assert int(told[place - 1]) == 8 * 4 + asked // 4
        assert int(told[place - int(back[row, place])]) == asked
        between = told[place - int(back[row, place]) + 1 : place - 1]
        assert not ((between < 8 * 4) & (between // 4 == asked // 4)).any()


def test_what_a_key_stands_for_is_drawn_anew_for_each_document():
    task, _ = look_up(400, 8, 4, 256, 1)
    pairs = torch.stack([row[row < 8 * 4].unique() for row in task.tokens])
    assert pairs.shape == (400, 8)
    assert (pairs // 4 == torch.arange(8)).all()
    assert float((pairs % 4 == 0).float().mean()) == pytest.approx(0.25, abs=0.03)


def test_sorting_asks_for_all_types_by_falling_count():
    task = sorting(30, 6, 200, 0)
    assert task.asked.sum(1).tolist() == [6] * 30
    assert (task.tokens[:, 200] == 6).all()
    assert sorted_by_counting(task, 6, 200).all()
    for row in task.tokens:
        counts = row[:200].bincount(minlength=6)[row[201:]]
        assert (counts.diff() <= 0).all()


def test_who_sorts_by_few_tokens_errs_and_who_counts_none_guesses():
    task = sorting(200, 20, 1000, 1)
    shares = [float(sorted_by_counting(task, 20, last).float().mean()) for last in (64, 256, 1000)]
    assert shares[0] < shares[1] < shares[2] == 1
    guess = sum(1 / left for left in range(1, 21)) / 20
    assert guess < shares[0] < 0.5
