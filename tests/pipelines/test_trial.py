"""Plans of `memlm try`: what fits into a few minutes on a text, on machines of any speed."""

import re
import tomllib
from dataclasses import replace

import pytest
import torch

from pipelines.recipe import load_recipe
from pipelines.trial import (
    Plan,
    longest_context,
    plan_trial,
    read_plan,
    recipe_text,
    scored_shares,
    training_settings,
)
from pipelines.trial_budget import (
    FEWEST_BYTES,
    FEWEST_PASSES,
    GOOD_PASSES,
    USED,
    Machine,
    Planner,
    require_enough,
)
from stages.errors import DataError, UsageError
from stages.metrics import undertrained
from stages.models.language_model import LanguageModel
from stages.text.survey import Documents, Survey

TRAINING = training_settings()
NOVEL = 430_000


def three_bytes(types):
    """Bytes per token of a text, the same for every vocabulary."""
    return 3.0


def planner(machine, shares=None):
    return Planner(three_bytes, machine, TRAINING, shares)


def survey(characters, *longest):
    """A text with files, paragraphs and lines of the given lengths."""
    settings = (None, "blank-line", "line")
    cuts = [
        Documents(s, round(characters / size), size)
        for s, size in zip(settings, longest, strict=True)
    ]
    return Survey(characters, characters, tuple(cuts))


@pytest.mark.parametrize("speed", [2_000, 5_000, 20_000, 100_000])
@pytest.mark.parametrize("minutes", [3, 5, 10, 60])
@pytest.mark.parametrize("total", [60_000, NOVEL, 6_000_000])
def test_models_are_trained_well_in_the_available_time(speed, minutes, total):
    machine = Machine(speed, minutes, spent=10.0)
    found = planner(machine).best(total)
    assert FEWEST_BYTES <= found.bytes <= total
    assert found.passes >= min(found.worthwhile, GOOD_PASSES)
    assert found.seconds(machine) <= USED * 60 * minutes + 1
    if found.bytes < 0.9 * total:  # else there is more time than the whole text needs
        assert found.seconds(machine) >= 0.88 * USED * 60 * minutes
    assert 0 < found.test == found.valid <= (0.1 if found.bytes == total else 0.25)


def test_seeds_share_the_time():
    spent = 20.0
    one, five = (
        Machine(8_000, 4, spent=spent),
        Machine(8_000, 5 * 4 - 4 * spent / 60 / USED, 5, spent),
    )
    found = planner(one).best(NOVEL)
    assert planner(five).best(NOVEL) == found
    assert found.seconds(five) == pytest.approx(spent + 5 * (found.seconds(one) - spent))
    with pytest.raises(UsageError, match=r"--minutes \d") as said:
        planner(Machine(10_000, 0.5, 5)).best(NOVEL)
    enough = minutes_in(said.value)
    assert planner(Machine(10_000, enough, 5)).best(NOVEL).bytes >= FEWEST_BYTES


def test_tokens_are_counted_with_the_vocabulary_that_train_gives():
    def token_bytes(types):
        return {512: 2.0, 1024: 3.0}[types]

    found = Planner(token_bytes, Machine(20_000, 2), TRAINING, (0.1, 0.1)).budget(150_000, False)
    assert (found.types, found.tokens) == (512, 60_000)  # the whole text would have 1,024 types


def test_more_time_is_more_text_then_more_passes_then_a_second_model():
    found = [planner(Machine(8_000, minutes)).best(NOVEL) for minutes in (1, 2, 4, 8, 30)]
    assert [one.bytes < NOVEL for one in found] == [True, True, False, False, False]
    assert [one.trime for one in found] == [False, False, False, True, True]
    both = [one.passes for one in found if one.trime]
    assert not any(undertrained({"passes": passes, "still_falling": True}) for passes in both)
    assert [one.bytes for one in found] == sorted(one.bytes for one in found)


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


def plan_of(trial):
    """The plan in the recipe of a trial."""
    return Plan.model_validate(tomllib.loads(recipe_text(trial))["plan"])


def minutes_in(said):
    """The last number of minutes in a text."""
    return float(re.findall(r"--minutes (\d+)", str(said))[-1])


@pytest.mark.parametrize("shares", [None, (0.1, 0.1)])
def test_on_a_busy_machine_less_is_tried_with_a_warning(shares):
    machine = Machine(1_350, 3, spent=15.0)
    found = planner(machine, shares).best(NOVEL)
    assert (found.bytes, found.trime, found.poor) == (FEWEST_BYTES, False, True)
    assert FEWEST_PASSES <= found.passes < GOOD_PASSES
    trial = plan_trial(survey(found.bytes, 1_000, 500, 100), NOVEL, found, planner(machine, shares))
    (little,) = [
        line
        for line in plan_of(trial).said
        if line.startswith(f"{trial.budget.passes:.2g} passes over 50.0 kB: ")
    ]
    assert little.endswith(" 4 passes")
    enough = Machine(1_550, minutes_in(little), spent=15.0)
    assert not planner(enough, shares).best(NOVEL).poor


def test_requested_shares_are_used_and_cost_time():
    machine = Machine(3_000, 5)
    found, own = planner(machine).best(NOVEL), scored_shares(["0.7", "0.1", "0.2"])
    asked = planner(machine, own).best(NOVEL)
    assert own == (asked.valid, asked.test) == (0.1, 0.2)
    assert found.test < 0.2 and asked.bytes < found.bytes
    trial = plan_trial(survey(asked.bytes, 1_000, 500, 100), NOVEL, asked, planner(machine, own))
    assert tomllib.loads(recipe_text(trial))["stages"]["tokens"]["settings"]["split"] == [
        0.7,
        0.1,
        0.2,
    ]
    assert "20%" in plan_of(trial).said[1] and "10%" in plan_of(trial).said[1]
    for wrong, said in (
        (["0.9", "0.1"], "three shares"),
        (["0.5", "0.1", "0.1"], "sum to 0.7"),
        (["a"], "split"),
    ):
        with pytest.raises(UsageError, match=said):
            scored_shares(wrong)


@pytest.mark.parametrize(
    ("minutes", "lacking"),
    [
        (
            2,
            "all of the text, larger valid and test splits, 8 passes over it and a second model trained with memory",
        ),
        (3, "8 passes over it and a second model trained with memory"),
        (60, None),
    ],
)
def test_the_plan_says_what_more_minutes_would_add(minutes, lacking):
    machine = Machine(8_000, minutes)
    found = planner(machine).best(NOVEL)
    trial = plan_trial(survey(found.bytes, 1_000, 500, 100), NOVEL, found, planner(machine))
    plan = plan_of(trial)
    (line,) = plan.ample or [None]
    assert (line and line.partition(" for ")[2]) == lacking
    if lacking is not None:
        assert line in plan.said
        assert minutes_in(line) > minutes


@pytest.mark.parametrize(
    ("longest", "setting"),
    [
        ((1_000, 500, 100), None),
        ((NOVEL, 2_000, 100), "blank-line"),
        ((NOVEL, NOVEL, 100), "line"),
        ((NOVEL / 5, NOVEL / 20, 100), "line"),
    ],
)
def test_documents_are_the_coarsest_unit_that_keeps_the_requested_shares(
    tmp_path, longest, setting
):
    budget = planner(Machine(20_000, 10)).best(NOVEL)
    trial = plan_trial(survey(NOVEL, *longest), NOVEL, budget, planner(Machine(20_000, 10)))
    file = tmp_path / "trial.toml"
    file.write_text(recipe_text(trial))
    recipe = load_recipe(file, {"train": ["a.txt"]}, {})
    tokens, model = recipe.config("tokens"), recipe.config("model")
    assert tokens.documents == setting
    assert tokens.split == (pytest.approx(1 - 2 * budget.test), budget.test, budget.test)
    update = TRAINING.batch_tokens * TRAINING.accumulate
    assert model.steps == pytest.approx(trial.budget.passes * trial.budget.tokens / update, abs=1)
    every = (NOVEL / 3 + trial.documents.count) * (1 - 2 * trial.budget.test)
    assert trial.budget.tokens == pytest.approx(every, abs=2)  # each document ends with <eos>
    assert ("trime" in recipe.stages) == budget.trime
    assert f"{trial.steps:,} steps" in " ".join(read_plan(file).said)


@pytest.mark.parametrize(("steps", "warmup"), [(150, 15), (900, 90), (5_000, 100)])
def test_both_models_have_small_batches_short_windows_and_a_warm_up_of_a_tenth(
    tmp_path, steps, warmup
):
    budget = planner(Machine(50_000, 30)).best(NOVEL)
    trial = plan_trial(survey(NOVEL, NOVEL, 500, 100), NOVEL, budget, planner(Machine(50_000, 30)))
    file = tmp_path / "trial.toml"
    file.write_text(recipe_text(replace(trial, steps=steps)))
    recipe = load_recipe(file, {"train": ["a.txt"]}, {})
    for name in ("model", "trime"):
        config = recipe.config(name)
        assert (config.steps, config.batch_tokens, config.segment_length) == (steps, 512, 32)
        assert (config.schedule.warmup, config.schedule.name) == (warmup, TRAINING.schedule.name)


def test_a_text_of_a_few_lines_cannot_be_cut():
    budget = planner(Machine(20_000, 10)).best(NOVEL)
    for longest, said in ((NOVEL // 4, "4 lines"), (NOVEL, "1 line")):
        with pytest.raises(DataError, match=said):
            plan_trial(
                survey(NOVEL, NOVEL, NOVEL, longest), NOVEL, budget, planner(Machine(20_000, 10))
            )


def test_the_plan_says_that_it_reads_only_a_part_of_the_text(tmp_path):
    machine = Machine(5_000, 2)
    budget = planner(machine).best(NOVEL)
    trial = plan_trial(survey(budget.bytes, 1_000, 500, 100), NOVEL, budget, planner(machine))
    assert plan_of(trial).said[0].startswith("the first ")
    assert "430.0 kB" in plan_of(trial).said[0]


def test_the_plain_model_depends_on_exactly_the_longest_context():
    torch.manual_seed(0)
    segment, reach = TRAINING.segment_length, longest_context()
    model = LanguageModel(TRAINING.model.sized(50, segment)).eval()
    ids = torch.randint(50, (1, 5 * segment))

    def last(ids):
        with torch.no_grad():
            return model.encode(ids).hidden[0, -1]

    def depends(back):
        other = ids.clone()
        other[0, -back] = (other[0, -back] + 1) % 50
        return not torch.equal(last(ids), last(other))

    assert (depends(reach), depends(reach + 1)) == (True, False)
