"""The recipe that tries memory on a text: its split, the length of training, and the compared
memories.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

from pydantic import Field

from pipelines.recipe import parsed_recipe, read_recipe
from pipelines.settings import merged
from pipelines.trial_budget import (
    ENDLESS,
    GOOD_PASSES,
    MOST_COMPARED,
    USED,
    Budget,
    Machine,
    Planner,
    Shares,
)
from stages.config import Settings
from stages.errors import DataError, UsageError
from stages.numbers import duration, joined, number, passes, percent, size
from stages.text.config import TokenizeConfig
from stages.text.sample import FEWEST_TESTED, Part
from stages.text.survey import Documents, Survey
from stages.training.config import TrainConfig
from stages.training.presets import load_preset
from stages.validation import validated

PRESET = "tiny-transformer-xl"
CHANGES: Mapping[str, Any] = {"batch_tokens": 512, "segment_length": 32}
"""Changes to the preset: small batches of short segments, which learn a small text better.

Perplexity without memory in equal processor time (32 s on one core, one seed), on a novel and on
builtin:pydocs:

- Transformer-XL, segments of 32 tokens: 51.0, 38.3; of 64: 54.4, 45.1
- Transformer, segments of 32 tokens: 54.4, 45.0; of 128: 59.4, 51.3
"""
WARM_UP = 0.1
"""Share of the steps of a short training in which the learning rate rises."""
RULES = 12
"""Version of the planning rules: raised when the same text and minutes must give another recipe."""
LARGEST_DOCUMENT = 3.0
"""Largest size of a document, as a multiple of the test split: with a larger one shares could not
be met.
"""
EXACT_SAMPLE = 100
"""Rows for checking recall if all rows are compared, so that recall is always 1."""
SECOND = "a second model, trained with memory (TRIME-long) for as many steps, against the first"
NO_SECOND = "no second model trained with memory (TRIME), for which there is no time (--minutes)"
ENDS = (
    f"records are few: the ends of {FEWEST_TESTED} are test, and their beginnings are learned, too"
)
SPREAD = "records, from all over the text"
CONTEXT = "plain reads at most {} tokens back"
HARDWARE = "this machine as it was when this was planned"
FEWEST_DOCUMENTS = 30
"""Minimum number of documents in a text to cut into train, valid and test."""


class Plan(Settings):
    """Part of a recipe of `memlm try`: the choices, and their reasons."""

    said: list[str]
    """Lines about the text, the models and the time."""
    page: list[str] = Field(default_factory=list)
    """Lines of `said` that the page shows, too."""
    ample: list[str] = Field(default_factory=list)
    """Advice on more minutes, repeated with the results; empty if more minutes would not help."""


@dataclass(frozen=True)
class Trial:
    """The plan for a text."""

    budget: Budget
    machine: Machine
    total: int
    """Bytes of the whole text; the budget may use a part."""
    documents: Documents
    steps: int
    everything: Budget
    """Budget without limits: the whole text, all useful passes of both models, and the largest test
    split.
    """
    scores_less: bool = False
    """Whether less is scored than of a whole text, for lack of time."""
    good: int | None = None
    """Minutes needed to train a model well, if there is too little time."""
    part: Part | None = None
    """The records of the text in the budget; None: its beginning, or the whole text."""


def training_settings() -> TrainConfig:
    """Settings of training, except for the number of steps."""
    return TrainConfig.model_validate(merged(load_preset(PRESET), CHANGES))


def longest_context() -> int:
    """Tokens that a prediction of the plain model depends on.

    Each block reads one segment back, so several blocks together reach further.
    """
    training = training_settings()
    blocks: int = training.model_dump()["model"]["layers"]
    return (blocks + 1) * training.segment_length


def plan_trial(
    survey: Survey, total: int, first: Budget, planner: Planner, part: Part | None = None
) -> Trial:
    """Plan splits and steps from the survey, which knows how many documents end with `<eos>`.

    Args:
        survey: survey of the text, or of its part, to try.
        total: bytes of the whole text.
        first: the planner's budget of bytes and models, without counting `<eos>`.
        part: the records to try; None: the whole text, or its beginning.
    Raises: DataError for a text with too few lines.
    """
    longest = LARGEST_DOCUMENT * min(first.valid, first.test) * survey.characters
    documents = survey.cut_below(longest, FEWEST_DOCUMENTS) or survey.cuts[-1]
    require_lines(documents.count)
    ends, machine, training = documents.count / survey.bytes, planner.machine, planner.training
    with_ends = replace(
        planner, token_bytes=lambda types: 1 / (1 / planner.token_bytes(types) + ends)
    )
    found = with_ends.budget(first.bytes, first.trime, whole=first.bytes == total)
    # A shorter test text is better than a model that has hardly learned.
    if found.poor and planner.shares is None:
        fewest = replace(with_ends, shares=with_ends.fewest_shares(first.bytes))
        found = fewest.budget(first.bytes, first.trime, whole=first.bytes == total)
    steps = max(
        1, round(found.passes * found.tokens / (training.batch_tokens * training.accumulate))
    )
    endless = replace(planner, machine=Machine(machine.speed, ENDLESS, machine.seeds))
    everything = endless.budget(total, True)
    good = with_ends.minutes_for(GOOD_PASSES) if found.poor else None
    scores_less = planner.shares is None and found.test * found.bytes < everything.test * total
    return Trial(found, machine, total, documents, steps, everything, scores_less, good, part)


def require_lines(count: int) -> None:
    """Raises: DataError for a text with too few lines to be cut into splits."""
    if count < FEWEST_DOCUMENTS:
        raise DataError(
            f"The text has {count} line{'s'[: count != 1]}, too few to cut it into train, valid and test: break it "
            r"into lines (sed 's/[.!?] /&\n/g' makes one of each sentence), or name the splits by hand "
            "(memlm tokenize --train FILE --valid FILE --test FILE)."
        )


def recipe_text(trial: Trial) -> str:
    """The recipe, for `memlm run FILE --train TEXT`, with what was chosen as its plan."""
    lines = [
        'description = "Memory tried on a text"',
        f'time = "{_time(trial)}"',
        f'hardware = "{HARDWARE}"',
    ]
    plan = _plan(trial).model_dump()
    lines += ["", "[plan]", *(f"{key} = {_toml(value)}" for key, value in plan.items())]
    lines += ["", "[inputs]", 'train = "the text"']
    for name, stage in _stages(trial):
        lines += [
            "",
            f"[stages.{name}]",
            *(f"{key} = {_toml(value)}" for key, value in stage.items()),
        ]
    return "\n".join(lines) + "\n"


def _plan(trial: Trial) -> Plan:
    budget, everything = trial.budget, trial.everything
    left_out = {
        "all of the text": budget.bytes < trial.total,
        "larger valid and test splits": trial.scores_less,
        f"{everything.passes:.2g} passes over it": budget.passes < everything.passes,
        "a second model trained with memory": not budget.trime,
    }
    lacking = [what for what, lacks in left_out.items() if lacks]
    enough = ceil(everything.seconds(trial.machine) / (60 * USED))
    more = bool(lacking) and enough > trial.machine.minutes
    ample = [f"--minutes {enough} would be enough for {joined(lacking)}"] if more else []
    said = list(_described(trial))
    said[-1:-1] = ample
    page = [
        *(line for line in said if SPREAD in line or line == ENDS),
        CONTEXT.format(longest_context()),
    ]
    return Plan(said=said, page=page, ample=ample)


def scored_shares(split: Sequence[str]) -> Shares:
    """The shares of valid and test, from the shares of all three splits. Raises: UsageError if they
    do not sum to 1.
    """
    shares = validated(TokenizeConfig, {"split": list(split)}).split or ()
    if len(shares) != 3:
        raise UsageError(
            "--split: try measures on a test split: give three shares, of train, valid and test."
        )
    return shares[1], shares[2]


def check_settings(settings: Mapping[str, Any]) -> None:
    """Check settings, by stage, before any text is read. Raises: UsageError if they are wrong for
    every text.
    """
    any_budget = Budget(0, 0.1, 0.1, MOST_COMPARED + 1, 0, 0, 1.0, 1.0, True, {})
    trial = Trial(any_budget, Machine(1.0, 1.0), 0, Documents(None), 1000, any_budget)
    parsed_recipe(
        tomllib.loads(recipe_text(trial)), {"train": ["text.txt"]}, settings, Path("the recipe")
    )


def read_plan(recipe: Path) -> Plan:
    """The plan in a recipe of `memlm try`."""
    return validated(Plan, read_recipe(recipe).plan, where=f"plan of {recipe}")


def _described(trial: Trial) -> Iterator[str]:
    budget, documents = trial.budget, trial.documents
    what = {None: "files or records", "blank-line": "paragraphs", "line": "lines"}[
        documents.setting
    ]
    shares = f"the last {percent(budget.test)} are test, {percent(budget.valid)} before them valid"
    chosen = " (what there is time to score; --split for other shares)"
    if budget.bytes < trial.total:
        part = f"{size(budget.bytes)} of {size(trial.total)} of text"
        if trial.part is not None:
            cut = (
                ""
                if trial.part.length is None
                else f", the first {size(trial.part.length)} of each that is longer"
            )
            part = f"{trial.part.taken:,} of {trial.part.of:,} {SPREAD}{cut}, {part}"
        yield (
            f"{'the first ' if trial.part is None else ''}{part}: what a model can be "
            f"trained on with --minutes {number(trial.machine.minutes)} (more takes more)"
        )
    if trial.part is not None and trial.part.ends:
        yield ENDS
    yield f"documents are {what} ({documents.count:,}); {shares}{chosen if trial.scores_less else ''}"
    yield f"a bpe vocabulary of {budget.types:,} types, about {budget.tokens:,} tokens to learn from"
    yield (
        f"a model {PRESET} of {budget.weights / 1e6:.1f} million weights, {trial.steps:,} steps: "
        f"{budget.passes:.2g} passes over the text (more than {budget.worthwhile:.2g} gain little)"
    )
    if trial.good is not None:
        made = passes(float(f"{budget.passes:.2g}"))
        yield (
            f"{made} over {size(budget.bytes)}: expect a model hardly better than counting, so that a gain of a "
            f"memory says little; --minutes {trial.good} would be enough for "
            f"{number(min(GOOD_PASSES, budget.worthwhile))} passes"
        )
    yield "read alone, with a cache, with kNN-LM, and with both"
    yield CONTEXT.format(longest_context())
    yield SECOND if budget.trime else NO_SECOND
    if trial.machine.seeds > 1:
        yield f"all of it with {trial.machine.seeds} seeds, for means and intervals"
    yield f"{_time(trial)}, at {number(round(trial.machine.speed))} tokens a second in training, on {HARDWARE}"


def _time(trial: Trial) -> str:
    return f"about {duration(round(trial.budget.seconds(trial.machine)))}"


def _stages(trial: Trial) -> Iterator[tuple[str, Mapping[str, Any]]]:
    budget, setting = trial.budget, trial.documents.setting
    documents = {} if setting is None else {"documents": setting}
    split = [round(1 - budget.valid - budget.test, 6), budget.valid, budget.test]
    training = {"steps": trial.steps, **CHANGES}
    warmup = max(1, round(WARM_UP * trial.steps))
    if (
        warmup < training_settings().schedule.warmup
    ):  # else the preset's would be most of a short training
        training["schedule"] = {"warmup": warmup}
    index = {"index": "flat", "recall": EXACT_SAMPLE} if budget.tokens <= MOST_COMPARED else {}
    memory = {"memory": ["knn-lm", "neural-cache"], "save_token_scores": True}
    yield (
        "tokens",
        {"command": "tokenize", "from": "{train}", "settings": {**documents, "split": split}},
    )
    yield "model", {"command": "train", "from": "tokens", "preset": PRESET, "settings": training}
    yield "datastore", {"command": "build-datastore", "from": "model"}
    yield "index", {"command": "build-index", "from": "datastore", "settings": index}
    yield "report", {"command": "evaluate", "from": "index", "settings": memory}
    if budget.trime:
        second = {"method": "trime-long", **training}
        yield "trime", {"command": "train", "from": "tokens", "preset": PRESET, "settings": second}
        compared = {"with": {"baseline": "report"}, "settings": {"save_token_scores": True}}
        yield "trime_report", {"command": "evaluate", "from": "trime", **compared}


def _toml(value: Any) -> str:
    """A value as TOML; texts, numbers and lists are spelled as in JSON."""
    if isinstance(value, Mapping):
        return (
            "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
            if value
            else "{}"
        )
    return json.dumps(value)
