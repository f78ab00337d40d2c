"""The recipe of a trial, with its plan in words."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipelines.recipe import parsed_recipe, read_recipe
from pipelines.trial import CHANGES, PRESET, Trial, training_settings
from pipelines.trial_budget import Budget
from pipelines.trial_costs import MOST_COMPARED, Machine
from pipelines.trial_words import HARDWARE, Plan, plan_in_words, time_in_words
from stages.text.survey import DocumentSizes
from stages.validation import validated

WARM_UP = 0.1
"""Share of the steps of a short training in which the learning rate rises."""
EXACT_SAMPLE = 100
"""Rows for checking recall if all rows are compared, so that recall is always 1."""


def recipe_text(trial: Trial) -> str:
    """The recipe, for `memlm run FILE --train TEXT`, with what was chosen as its plan."""
    lines = [
        'description = "Memory tried on a text"',
        f'time = "{time_in_words(trial)}"',
        f'hardware = "{HARDWARE}"',
    ]
    plan = plan_in_words(trial).model_dump()
    lines += ["", "[plan]", *(f"{key} = {_toml(value)}" for key, value in plan.items())]
    lines += ["", "[inputs]", 'train = "the text"']
    for name, stage in _stages(trial):
        lines += [
            "",
            f"[stages.{name}]",
            *(f"{key} = {_toml(value)}" for key, value in stage.items()),
        ]
    return "\n".join(lines) + "\n"


def check_settings(settings: Mapping[str, Any]) -> None:
    """Check settings, by stage, before any text is read. Raises: UsageError if they are wrong for
    every text.
    """
    any_budget = Budget(
        bytes=0,
        valid=0.1,
        test=0.1,
        tokens=MOST_COMPARED + 1,
        types=0,
        weights=0,
        worthwhile=1.0,
        passes=1.0,
        trime=True,
        work=0.0,
    )
    trial = Trial(any_budget, Machine(1.0, 1.0), 0, DocumentSizes(None), 1000, any_budget)
    parsed_recipe(
        tomllib.loads(recipe_text(trial)), {"train": ["text.txt"]}, settings, Path("the recipe")
    )


def read_plan(recipe: Path) -> Plan:
    """The plan in a recipe of `memlm try`."""
    return validated(Plan, read_recipe(recipe).plan, where=f"plan of {recipe}")


def _stages(trial: Trial) -> Iterator[tuple[str, Mapping[str, Any]]]:
    budget = trial.budget
    setting = trial.documents.setting
    reading: dict[str, Any] = {} if setting is None else {"documents": setting}
    if trial.column is not None:
        reading["column"] = trial.column
    reading["split"] = [round(1 - budget.valid - budget.test, 6), budget.valid, budget.test]
    training = {"steps": trial.steps, **CHANGES}
    warmup = max(1, round(WARM_UP * trial.steps))
    if (
        warmup < training_settings().schedule.warmup
    ):  # else the preset's would be most of a short training
        training["schedule"] = {"warmup": warmup}
    index = {"index": "flat", "recall": EXACT_SAMPLE} if budget.tokens <= MOST_COMPARED else {}
    memory = {"memory": ["knn-lm", "neural-cache"]}
    yield (
        "tokens",
        {"command": "tokenize", "from": "{train}", "settings": reading},
    )
    yield "model", {"command": "train", "from": "tokens", "preset": PRESET, "settings": training}
    yield "datastore", {"command": "build-datastore", "from": "model"}
    yield "index", {"command": "build-index", "from": "datastore", "settings": index}
    yield "report", {"command": "evaluate", "from": "index", "settings": memory}
    if budget.trime:
        second = {"method": "trime-long", **training}
        yield "trime", {"command": "train", "from": "tokens", "preset": PRESET, "settings": second}
        compared = {"command": "evaluate", "from": "trime", "with": {"baseline": "report"}}
        yield "trime_report", compared


def _toml(value: Any) -> str:
    """A value as TOML; texts, numbers and lists are spelled as in JSON."""
    if isinstance(value, Mapping):
        return (
            "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
            if value
            else "{}"
        )
    return json.dumps(value)
