"""The plan of a trial in words."""

from collections.abc import Iterator

from pydantic import Field

from pipelines.trial import PRESET, Trial, longest_context
from pipelines.trial_budget import GOOD_PASSES
from stages.config import Settings
from stages.numbers import duration, joined, number, passes, percent, size
from stages.text.sample import SampleFacts

SECOND = "a second model, trained with memory (TRIME-long) for as many steps, against the first"
NO_SECOND = "no second model trained with memory (TRIME), for which there is no time (--minutes)"
SHARED = "records are few: windows of them are test, and other windows of the same ones are learned"
SPREAD = "drawn at random from all over the text"
WINDOWS = "windows of at most {}"
REST = "more passes gain little"
UNITS = {None: "files or records", "blank-line": "paragraphs", "line": "lines"}
"""Names of documents, by the setting of `tokenize --documents`."""
WELL_USED = 0.8
"""Share of the minutes below which the plan says why the others are not used."""
CONTEXT = "plain reads at most {} tokens back"
HARDWARE = "this machine as it was when this was planned"


class Plan(Settings):
    """Part of a recipe of `memlm try`: the choices, and their reasons."""

    said: list[str]
    """Lines about the text, the models and the time."""
    page: list[str] = Field(default_factory=list)
    """Lines of `said` that the page shows, too."""
    ample: list[str] = Field(default_factory=list)
    """Advice on more minutes, repeated with the results; empty if more minutes would not help."""
    speed: float
    """Tokens a second in training that the plan counts on."""
    seconds: float
    """Seconds that all was planned to take."""


def plan_in_words(trial: Trial) -> Plan:
    """The plan, with its reasons."""
    ample = list(_advice(trial))
    lines = list(_described(trial))
    # The time is said last.
    lines[-1:-1] = ample
    page = [
        *(line for line in lines if SPREAD in line or line == SHARED),
        CONTEXT.format(longest_context()),
    ]
    return Plan(
        said=lines, page=page, ample=ample, speed=trial.machine.speed, seconds=_seconds(trial)
    )


def _advice(trial: Trial) -> Iterator[str]:
    """Advice on more minutes, where they would add something."""
    budget = trial.budget
    everything = trial.everything
    left_out = {
        "all of the text": not trial.is_whole,
        "larger valid and test splits": trial.scores_less,
        f"{everything.passes:.2g} passes over it": budget.passes < everything.passes,
        "a second model trained with memory": not budget.trime,
    }
    lacking = [what for what, lacks in left_out.items() if lacks]
    enough = trial.machine.minutes_for(everything.work)
    if lacking and enough > trial.machine.minutes:
        yield f"--minutes {enough} would be enough for {joined(lacking)}"


def _described(trial: Trial) -> Iterator[str]:
    """The plan in words, a line for each choice; the time comes last."""
    yield from _described_text(trial)
    yield from _described_training(trial)
    yield "read alone, with a cache, with kNN-LM, and with both"
    yield CONTEXT.format(longest_context())
    yield SECOND if trial.budget.trime else NO_SECOND
    if trial.machine.seeds > 1:
        yield f"all of it with {trial.machine.seeds} seeds, for means and intervals"
    if _seconds(trial) < WELL_USED * 60 * trial.machine.minutes:
        yield f"the rest of --minutes {number(trial.machine.minutes)} is not used: {REST}"
    yield f"{time_in_words(trial)}, at {number(round(trial.machine.speed))} tokens a second in training, on {HARDWARE}"


def _described_text(trial: Trial) -> Iterator[str]:
    """The text that is read, and its documents."""
    budget = trial.budget
    documents = trial.documents
    part = trial.part
    if part is not None:
        read = f"{size(part.bytes)} of {size(trial.total)} of text"
        yield f"{_sample_in_words(part)}: {read}"
        if part.is_shared:
            yield SHARED
    if not trial.is_whole:
        yield (
            f"that is what a model can be trained on with --minutes {number(trial.machine.minutes)} "
            "(more takes more)"
        )
    windows = ", or windows of them" if part is not None and part.window is not None else ""
    unit = UNITS[documents.setting] + windows
    shares = f"the last {percent(budget.test)} are test, {percent(budget.valid)} before them valid"
    chosen = " (what there is time to score; --split for other shares)"
    yield f"documents are {unit} ({documents.count:,}); {shares}{chosen if trial.scores_less else ''}"


def _sample_in_words(part: SampleFacts) -> str:
    """The description of a sample."""
    windows = "" if part.window is None else WINDOWS.format(size(part.window))
    if part.of == 1:
        return f"{windows}, {SPREAD}"
    records = f"{part.num_read:,} of {part.of:,} files or records, {SPREAD}"
    return f"{records}, through {windows} where they are longer" if windows else records


def _described_training(trial: Trial) -> Iterator[str]:
    """The vocabulary, the model and its training."""
    budget = trial.budget
    yield f"a bpe vocabulary of {budget.types:,} types, about {budget.tokens:,} tokens to learn from"
    yield (
        f"a model {PRESET} of {budget.weights / 1e6:.1f} million weights, {trial.steps:,} steps: "
        f"{budget.passes:.2g} passes over the text (more than {budget.worthwhile:.2g} gain little)"
    )
    if trial.good is not None:
        number_of_passes = passes(float(f"{budget.passes:.2g}"))
        yield (
            f"{number_of_passes} over {size(trial.bytes)}: expect a model hardly better than counting, so that a gain of a "
            f"memory says little; --minutes {trial.good} would be enough for "
            f"{number(min(GOOD_PASSES, budget.worthwhile))} passes"
        )


def _seconds(trial: Trial) -> float:
    """Seconds that all takes, with what is over already."""
    return trial.machine.seconds_for(trial.budget.work)


def time_in_words(trial: Trial) -> str:
    """Time that all takes."""
    return f"about {duration(round(_seconds(trial)))}"
