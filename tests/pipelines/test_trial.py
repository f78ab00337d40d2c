"""Plans of `memlm try`: what fits into a few minutes on a text, on machines of any speed."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pipelines.recipe import load_recipe
from pipelines.trial import Trial, longest_context, plan_trial, scored_shares
from pipelines.trial_budget import FEWEST_BYTES, FEWEST_PASSES, GOOD_PASSES, Shares
from pipelines.trial_costs import Machine
from pipelines.trial_recipe import read_plan, recipe_text
from pipelines.trial_words import Plan
from stages.errors import DataError, UsageError
from stages.models.language_model import LanguageModel
from stages.text.sample import SampleFacts
from stages.text.survey import DocumentSizes, Survey
from tests.pipelines.trials import NOVEL, TRAINING, minutes_in, planner


def survey(characters: int, *longest: float) -> Survey:
    """A text with files, paragraphs and lines of the given lengths."""
    settings = (None, "blank-line", "line")
    cuts = [
        DocumentSizes(s, round(characters / size), int(size))
        for s, size in zip(settings, longest, strict=True)
    ]
    return Survey(characters, characters, tuple(cuts))


def plan_of(trial: Trial) -> Plan:
    """The plan in the recipe of a trial."""
    return Plan.model_validate(tomllib.loads(recipe_text(trial))["plan"])


@pytest.mark.parametrize("shares", [None, (0.1, 0.1)])
def test_on_a_busy_machine_less_is_tried_with_a_warning(shares: Shares | None) -> None:
    machine = Machine(1_500, 3, spent=15.0)
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
    enough = Machine(1_700, minutes_in(little), spent=15.0)
    assert not planner(enough, shares).best(NOVEL).poor


def test_requested_shares_are_used_and_cost_time() -> None:
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
        (
            3,
            "larger valid and test splits, 8 passes over it and a second model trained with memory",
        ),
        (60, None),
    ],
)
def test_the_plan_says_what_more_minutes_would_add(minutes: float, lacking: str | None) -> None:
    machine = Machine(8_000, minutes)
    found = planner(machine).best(NOVEL)
    trial = plan_trial(survey(found.bytes, 1_000, 500, 100), NOVEL, found, planner(machine))
    plan = plan_of(trial)
    assert [line.partition(" for ")[2] for line in plan.ample] == ([lacking] if lacking else [])
    for line in plan.ample:
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
    tmp_path: Path, longest: tuple[int, int, int], setting: str | None
) -> None:
    budget = planner(Machine(20_000, 10)).best(NOVEL)
    trial = plan_trial(survey(NOVEL, *longest), NOVEL, budget, planner(Machine(20_000, 10)))
    file = tmp_path / "trial.toml"
    file.write_text(recipe_text(trial))
    recipe = load_recipe(file, {"train": ["a.txt"]}, {})
    tokens: Any = recipe.config("tokens")
    model: Any = recipe.config("model")
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
    tmp_path: Path, steps: int, warmup: int
) -> None:
    budget = planner(Machine(50_000, 30)).best(NOVEL)
    trial = plan_trial(survey(NOVEL, NOVEL, 500, 100), NOVEL, budget, planner(Machine(50_000, 30)))
    file = tmp_path / "trial.toml"
    file.write_text(recipe_text(replace(trial, steps=steps)))
    recipe = load_recipe(file, {"train": ["a.txt"]}, {})
    for name in ("model", "trime"):
        config: Any = recipe.config(name)
        assert (config.steps, config.batch_tokens, config.segment_length) == (steps, 512, 32)
        assert (config.schedule.warmup, config.schedule.name) == (warmup, TRAINING.schedule.name)


def test_a_text_of_a_few_lines_cannot_be_cut() -> None:
    budget = planner(Machine(20_000, 10)).best(NOVEL)
    for longest, said in ((NOVEL // 4, "4 lines"), (NOVEL, "1 line")):
        with pytest.raises(DataError, match=said):
            plan_trial(
                survey(NOVEL, NOVEL, NOVEL, longest), NOVEL, budget, planner(Machine(20_000, 10))
            )


def test_the_plan_says_which_part_of_the_text_it_reads() -> None:
    machine = Machine(5_000, 2)
    budget = planner(machine).best(NOVEL)
    surveyed = survey(budget.bytes, 1_000, 500, 100)
    part = SampleFacts(num_read=62, of=751, window=8_000, is_shared=True, bytes=412_000)
    plan = plan_of(plan_trial(surveyed, NOVEL, budget, planner(machine), part))
    read, shared, why = plan.said[:3]
    assert read.startswith("62 of 751 ") and "at random" in read and "412.0 kB" in read
    assert "windows of at most 8.0 kB" in read
    assert "other windows" in shared and "--minutes 2" in why
    assert plan.said[3].startswith("documents are files or records, or windows of them (")
    assert plan.page[:2] == [read, shared]
    whole = plan_of(
        plan_trial(surveyed, NOVEL, budget, planner(machine), SampleFacts(9, 9, bytes=budget.bytes))
    )
    assert "windows" not in " ".join(whole.said)


def test_the_plan_says_why_minutes_are_not_used() -> None:
    """A small text is learned in a part of them; a long one takes all."""
    machine = Machine(8_000, 10)
    for total, is_used in ((60_000, False), (6_000_000, True)):
        budget = planner(machine).best(total)
        trial = plan_trial(survey(budget.bytes, 1_000, 500, 100), total, budget, planner(machine))
        reasons = [line for line in plan_of(trial).said if "is not used" in line]
        assert [line.startswith("the rest of --minutes 10 ") for line in reasons] == [True] * (
            not is_used
        )


def test_the_plain_model_depends_on_exactly_the_longest_context() -> None:
    torch.manual_seed(0)
    segment, reach = TRAINING.segment_length, longest_context()
    model = LanguageModel(TRAINING.model.sized(50, segment)).eval()
    ids = torch.randint(50, (1, 5 * segment))

    def last(ids: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return model.encode(ids).hidden[0, -1]

    def depends(back: int) -> bool:
        other = ids.clone()
        other[0, -back] = (other[0, -back] + 1) % 50
        return not torch.equal(last(ids), last(other))

    assert (depends(reach), depends(reach + 1)) == (True, False)
