"""Rules of `memlm try`: what fits into a few minutes on a text, on machines of any speed."""

from dataclasses import replace
from math import inf

import pytest

from pipelines.trial_budget import (
    FEWEST_BYTES,
    GOOD_PASSES,
    LEARNING,
    SECOND,
    Planner,
    require_enough,
)
from pipelines.trial_costs import (
    SCORED,
    SCORED_ROW,
    STAGE,
    STORED,
    TRIME,
    TRIME_SCORED,
    USED,
    Machine,
)
from stages.errors import DataError, UsageError
from tests.pipelines.trials import NOVEL, TRAINING, minutes_in, planner


@pytest.mark.parametrize("speed", [2_000, 5_000, 20_000, 100_000])
@pytest.mark.parametrize("minutes", [3, 5, 10, 60])
@pytest.mark.parametrize("total", [60_000, NOVEL, 6_000_000])
def test_models_are_trained_well_and_the_time_is_used(speed, minutes, total):
    machine = Machine(speed, minutes, spent=10.0)
    budget = planner(machine).best(total)
    seconds = machine.seconds_for(budget.work)
    assert FEWEST_BYTES <= budget.bytes <= total
    assert budget.passes >= min(budget.worthwhile, GOOD_PASSES) and not budget.poor
    assert seconds <= USED * 60 * minutes + 1
    if budget.passes < budget.worthwhile:
        assert seconds == pytest.approx(USED * 60 * minutes)
    assert 0 < budget.test == budget.valid <= 0.1


def test_a_part_of_a_text_is_what_seventy_percent_of_the_work_reads_four_times():
    machine = Machine(8_000, 10, spent=12.0)
    work = 8_000 * (0.92 * 600 - 12) - 5 * STAGE
    tokens = LEARNING * work / (4 + STORED)
    assert planner(machine).text_bytes(6_000_000) == pytest.approx(3 * tokens, abs=1_000)
    assert planner(machine).text_bytes(NOVEL) == NOVEL


def test_a_part_is_as_long_as_tokens_of_its_own_vocabulary_are():
    """Tokens of the large vocabulary of all of the text are longer."""

    def token_bytes(types):
        return 2.0 if types <= 1024 else 4.0

    budget = Planner(token_bytes, Machine(4_000, 4, spent=12.0), TRAINING).best(30_000_000)
    assert (budget.types, budget.poor) == (1024, False)
    assert GOOD_PASSES <= budget.passes < 1.4 * GOOD_PASSES


def test_a_text_that_is_long_for_the_model_is_read_once():
    machine = Machine(200_000, 60)
    budget = planner(machine).best(1_000_000_000)
    work = 200_000 * 0.92 * 3600
    assert budget.worthwhile == 1.0
    assert budget.bytes == pytest.approx(3 * LEARNING * work / (1 + STORED), rel=0.01)


def test_the_work_is_that_of_all_stages():
    budget = planner(Machine(8_000, 10)).budget(NOVEL, inf)
    every = NOVEL / 3
    read = 0.2 * every
    one = 5 * STAGE + STORED * budget.tokens + (SCORED + SCORED_ROW * every) * read
    second = 2 * STAGE + TRIME_SCORED * read
    assert (budget.valid, budget.test, budget.trime, budget.passes) == (0.1, 0.1, True, 8.0)
    assert budget.work == pytest.approx(one + second + 8 * (1 + TRIME) * budget.tokens)


def test_advice_on_minutes_is_more_than_there_are():
    """A plan may be poor because time was lost after the text was drawn."""
    assert planner(Machine(8_000, 5.5)).minutes_for(GOOD_PASSES) == 6
    assert planner(Machine(500, 5.5)).minutes_for(GOOD_PASSES) > 6


def test_a_second_model_is_trained_where_both_make_most_passes_over_all_of_the_text():
    rules = planner(Machine(8_000, 10))
    both = rules.budget(NOVEL, inf)
    enough = both.work - (1 - SECOND) * both.worthwhile * (1 + TRIME) * both.tokens
    least = rules.budget(NOVEL, 1.001 * enough)
    assert least.trime and least.passes == pytest.approx(SECOND * least.worthwhile, rel=0.01)
    assert not rules.budget(NOVEL, 0.999 * enough).trime
    assert not rules.budget(NOVEL, inf, whole=False).trime


def test_seeds_share_the_time():
    spent = 20.0
    one, five = (
        Machine(8_000, 4, spent=spent),
        Machine(8_000, 5 * 4 - 4 * spent / 60 / USED, 5, spent),
    )
    budget = planner(one).best(NOVEL)
    assert planner(five).best(NOVEL).bytes == budget.bytes
    seconds = [machine.seconds_for(budget.work) - spent for machine in (one, five)]
    assert seconds[1] == pytest.approx(5 * seconds[0])
    with pytest.raises(UsageError, match=r"--minutes \d") as said:
        planner(Machine(10_000, 0.5, 5)).best(NOVEL)
    enough = minutes_in(said.value)
    assert planner(Machine(10_000, enough, 5)).best(NOVEL).bytes >= FEWEST_BYTES


def test_tokens_are_counted_with_the_vocabulary_that_train_gives():
    def token_bytes(types):
        return {512: 2.0, 1024: 3.0}[types]

    budget = Planner(token_bytes, Machine(20_000, 2), TRAINING, (0.1, 0.1)).budget(150_000, inf)
    assert (budget.types, budget.tokens) == (512, 60_000)  # the whole text would have 1,024 types


def test_more_time_is_more_text_then_more_passes_then_a_second_model():
    budgets = [planner(Machine(8_000, minutes)).best(NOVEL) for minutes in (1, 2, 3, 5, 8, 30)]
    assert [budget.bytes < NOVEL for budget in budgets] == [True, True, *[False] * 4]
    assert [budget.bytes for budget in budgets] == sorted(budget.bytes for budget in budgets)
    assert [budget.trime for budget in budgets] == [*[False] * 4, True, True]
    assert budgets[2].passes < budgets[3].passes == 8.0


def test_too_little_text_or_time_is_refused_with_advice():
    with pytest.raises(DataError, match=r"a\.txt .*49,999.*50,000"):
        require_enough(FEWEST_BYTES - 1, "a.txt")
    with pytest.raises(UsageError, match=r"--minutes 0\.2 .*10,000.* --minutes \d") as said:
        planner(Machine(10_000, 0.2)).best(NOVEL)
    assert planner(Machine(10_000, minutes_in(said.value))).best(NOVEL).bytes >= FEWEST_BYTES


@pytest.mark.parametrize("machine", [Machine(1.0, 3, spent=15.0), Machine(1.0, 9, seeds=3)])
@pytest.mark.parametrize("shares", [None, (0.1, 0.2)])
def test_the_minimum_speed_is_known_before_the_machine_is_timed(machine, shares):
    least = planner(machine, shares).least_speed()
    assert planner(replace(machine, speed=1.001 * least), shares).best(NOVEL).bytes >= FEWEST_BYTES
    with pytest.raises(UsageError):
        planner(replace(machine, speed=0.999 * least), shares).best(NOVEL)
