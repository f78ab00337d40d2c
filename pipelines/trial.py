"""The recipe that tries memory on a text: how it is cut, for how long models are trained, and what is compared."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from pipelines.recipe import parsed_recipe
from pipelines.trial_budget import ENDLESS, MOST_COMPARED, USED, Budget, Machine, TokenBytes, budget
from stages.errors import DataError
from stages.numbers import duration, number, percent, size
from stages.text.survey import Documents, Survey
from stages.training.config import TrainConfig

PRESET = "tiny"
RULES = 4
"""Goes up when the same text and minutes are to give another recipe."""
LARGEST_DOCUMENT = 3.0
"""In sizes of the test split: larger ones would leave too little of the shares that are asked for."""
EXACT_SAMPLE = 100
"""Rows whose neighbours are checked where all rows are compared, and every recall is 1."""
AMPLE = "--minutes {} would be enough for all of the text, and for all passes that are worth making"
FEWEST_DOCUMENTS = 30
"""That a text must fall into to be cut into train, valid and test."""


@dataclass(frozen=True)
class Trial:
    """What is done with a text."""

    budget: Budget
    machine: Machine
    total: int
    """Bytes of the text, of which the budget may have a part."""
    documents: Documents
    steps: int
    ample: int
    """Minutes in which all of the text is read as often as is worth it, by both models."""


def plan_trial(
    survey: Survey, total: int, first: Budget, token_bytes: TokenBytes, machine: Machine, training: TrainConfig
) -> Trial:
    """Cut a text, and count steps, now that it is known how many documents end with `<eos>`.

    Args:
        survey: of the text, or the part of it, that is tried.
        total: bytes of all of the text.
        first: the bytes and the models that there is time for on this machine.
        token_bytes: of the text, `<eos>` left aside.
        training: how models are trained.
    Raises: DataError for a text that is too few lines.
    """
    longest = LARGEST_DOCUMENT * first.share * survey.characters
    documents = survey.cut_below(longest, FEWEST_DOCUMENTS) or survey.cuts[-1]
    if documents.count < FEWEST_DOCUMENTS:
        lines = f"{documents.count} line{'s'[: documents.count != 1]}"
        raise DataError(
            f"The text has {lines}, too few to cut it into train, valid and test: break it into lines, "
            "or name the splits by hand (memlm tokenize --train FILE --valid FILE --test FILE)."
        )
    ends = documents.count / survey.bytes
    whole = first.bytes == total

    def with_ends(types: int) -> float:
        return 1 / (1 / token_bytes(types) + ends)

    found = budget(first.bytes, first.trime, with_ends, machine, training, whole=whole)
    steps = max(1, round(found.passes * found.tokens / (training.batch_tokens * training.accumulate)))
    everything = budget(total, True, token_bytes, Machine(machine.speed, ENDLESS, machine.seeds), training)
    return Trial(found, machine, total, documents, steps, ceil(everything.seconds(machine) / (60 * USED)))


def recipe_text(trial: Trial) -> str:
    """The recipe, for `memlm run FILE --train TEXT`, with what was chosen said at its head."""
    lines = [f"# {line}" for line in _described(trial)]
    lines += ["", 'description = "Memory tried on a text"', "", "[inputs]", 'train = "the text"']
    for name, stage in _stages(trial):
        lines += ["", f"[stages.{name}]", *(f"{key} = {_toml(value)}" for key, value in stage.items())]
    return "\n".join(lines) + "\n"


def check_settings(settings: Mapping[str, Any]) -> None:
    """Check settings, by stage, before any text is read. Raises: UsageError for what a recipe of no text could take."""
    any_budget = Budget(0, 0.1, MOST_COMPARED + 1, 0, 0, 1.0, 1.0, True, 0.0)
    trial = Trial(any_budget, Machine(1.0, 1.0), 0, Documents(None), 1000, 1)
    parsed_recipe(tomllib.loads(recipe_text(trial)), {"train": ["text.txt"]}, settings, Path("the recipe"))


def described(recipe: str) -> list[str]:
    """What the head of such a recipe says, a line each."""
    head = recipe.partition("\n\n")[0].splitlines()
    return [line.removeprefix("# ") for line in head if line.startswith("# ")]


def _described(trial: Trial) -> Iterator[str]:
    budget, documents = trial.budget, trial.documents
    what = {None: "files or records", "blank-line": "paragraphs", "line": "lines"}[documents.setting]
    share = percent(budget.share)
    if budget.bytes < trial.total:
        yield (
            f"the first {size(budget.bytes)} of {size(trial.total)} of text: what a model can be "
            f"trained on with --minutes {number(trial.machine.minutes)} (more takes more)"
        )
    yield f"documents are {what} ({documents.count:,}); the last {share} are test, {share} before them valid"
    yield f"a bpe vocabulary of {budget.types:,} types, about {budget.tokens:,} tokens to learn from"
    yield (
        f"a model {PRESET} of {budget.weights / 1e6:.1f} million weights, {trial.steps:,} steps: "
        f"{budget.passes:.2g} passes over the text (more than {budget.worthwhile:.2g} gain little)"
    )
    yield "read alone, with a cache, with kNN-LM, and with both"
    if budget.trime:
        yield "a second model, trained with memory (TRIME-long) for as many steps, against the first"
    else:
        yield "no second model trained with memory (TRIME), which takes more time (--minutes)"
    if trial.machine.seeds > 1:
        yield f"all of it with {trial.machine.seeds} seeds, for means and intervals"
    if trial.ample > trial.machine.minutes:
        yield AMPLE.format(trial.ample)
    yield (
        f"about {duration(round(budget.seconds(trial.machine)))}, at {number(round(trial.machine.speed))} tokens a "
        "second in training, as this machine was when this was planned"
    )


def _stages(trial: Trial) -> Iterator[tuple[str, Mapping[str, Any]]]:
    budget, setting = trial.budget, trial.documents.setting
    documents = {} if setting is None else {"documents": setting}
    split = [round(1 - 2 * budget.share, 6), budget.share, budget.share]
    training = {"steps": trial.steps}
    index = {"index": "flat", "recall_queries": EXACT_SAMPLE} if budget.tokens <= MOST_COMPARED else {}
    memory = {"memory": ["knn-lm", "neural-cache"], "save_token_scores": True}
    yield "tokens", {"command": "tokenize", "from": "{train}", "settings": {**documents, "split": split}}
    yield "model", {"command": "train", "from": "tokens", "preset": PRESET, "settings": training}
    yield "datastore", {"command": "build-datastore", "from": "model"}
    yield "index", {"command": "build-index", "from": "datastore", "settings": index}
    yield "report", {"command": "evaluate", "from": "index", "settings": memory}
    if budget.trime:
        settings = {"method": "trime-long", **training}
        yield "trime", {"command": "train", "from": "tokens", "preset": PRESET, "settings": settings}
        compared = {"with": {"baseline": "report"}, "settings": {"save_token_scores": True}}
        yield "trime_report", {"command": "evaluate", "from": "trime", **compared}


def _toml(value: Any) -> str:
    """A value as TOML; texts, numbers and lists are spelled as in JSON."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }" if value else "{}"
    return json.dumps(value)
