"""The plan of a trial made on this machine: its speed is measured, a part of the text is drawn, and
a recipe is written.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from pipelines.trial import plan_trial
from pipelines.trial_budget import FEWEST_BYTES, Budget, Planner, TokenBytes
from pipelines.trial_costs import Machine, require_time
from pipelines.trial_recipe import recipe_text
from stages.artifacts.durable import write_atomically
from stages.errors import UsageError
from stages.numbers import size
from stages.text.config import TEXT
from stages.text.records import TextFile
from stages.text.sample import (
    Sample,
    SampleFacts,
    draw_sample,
    is_tested_by_few,
    record_lines,
    sample_text,
)
from stages.text.survey import (
    SAMPLE_BYTES,
    bpe_vocabulary,
    record_sizes,
    survey,
    token_bytes,
)


@dataclass(frozen=True)
class TrialText:
    """A text to try."""

    files: list[TextFile]
    sizes: list[int]
    """Bytes of each record."""
    column: str | None = None
    """Column or field that holds the text; None: the usual one."""

    @classmethod
    def of(cls, paths: Sequence[str], column: str | None = None) -> "TrialText":
        """The text of files. Raises: DataError for any fault in them."""
        files = [TextFile.of(path, column or TEXT) for path in paths]
        return cls(files, record_sizes(files), column)

    @property
    def bytes(self) -> int:
        return sum(self.sizes)

    def token_bytes(self) -> TokenBytes:
        """Bytes per token by the number of types, measured on a sample."""
        return token_bytes(sample_text(self.files, self.sizes, SAMPLE_BYTES))


def part_files(recipe: Path) -> list[Path]:
    """The file with the part of the text that a recipe reads; empty if it reads the whole text."""
    return sorted(recipe.with_suffix("").glob("*.jsonl"))


def write_plan(
    text: TrialText,
    planner: Planner,
    recipe: Path,
    device: str,
    began: float,
    say: Callable[[str], None],
) -> None:
    """Make the plan and write the recipe; and next to it the part of the text to try, unless it is
    the whole.

    Args:
        planner: without the speed of the machine, which is measured here.
        began: when the command began, in seconds of the monotonic clock.
        say: receives what is done.
    Raises: UsageError for too little time; DataError for a text that cannot be cut into splits.
    """
    require_time(_at(planner.machine, began))
    say("timing this machine")
    planner = _timed(planner, text.bytes, device, began)
    budget = planner.best(text.bytes)

    recipe.parent.mkdir(parents=True, exist_ok=True)
    # The recipe goes before its part: without one it would read the whole text.
    recipe.unlink(missing_ok=True)
    for file in part_files(recipe):
        file.unlink()
    read = text
    part = None
    is_whole = budget.bytes == text.bytes
    if not is_whole or is_tested_by_few(text.sizes, int(budget.test * text.bytes)):
        path, part = _write_part(text, budget, recipe.with_suffix(""))
        read = TrialText.of([path])
        planner = replace(planner, token_bytes=read.token_bytes())
    surveyed = survey(read.files)
    planner = replace(planner, machine=_at(planner.machine, began))
    trial = plan_trial(surveyed, text.bytes, budget, planner, part, read.column)
    write_atomically(recipe, recipe_text(trial))


def _at(machine: Machine, began: float) -> Machine:
    """The machine with the time that is over by now."""
    return replace(machine, spent=time.monotonic() - began)


def _timed(planner: Planner, total: int, device: str, began: float) -> Planner:
    """The planner with the training speed of this machine, for the vocabulary of the planned text.

    A part of a text has fewer types, and a model with fewer types trains faster: 11,000 tokens a
    second instead of 7,200 were seen.
    """
    from stages.training.speed import training_speed

    least_speed = replace(planner, machine=_at(planner.machine, began)).least_speed()

    def timed(types: int) -> Planner:
        speed = training_speed(planner.training, types, device, least_speed)
        return replace(planner, machine=replace(_at(planner.machine, began), speed=speed))

    types = bpe_vocabulary(total)
    first = timed(types)
    try:
        fewer = first.best(total).types
    except UsageError:  # too little time at the speed of a vocabulary that is too large
        fewer = bpe_vocabulary(FEWEST_BYTES)
    return timed(fewer) if fewer < types else first


def _write_part(text: TrialText, budget: Budget, folder: Path) -> tuple[str, SampleFacts]:
    """Write a sample of a text into a folder; the file, and its description."""
    scored = int((budget.valid + budget.test) * budget.bytes)
    sample: Sample = draw_sample(text.sizes, budget.bytes, scored, int(budget.test * budget.bytes))
    part = SampleFacts.of_sample(sample, text.sizes)
    name = part_name([file.path for file in text.files], part.bytes, text.bytes)
    write_atomically(folder / name, "".join(record_lines(text.files, sample.ranges)))
    return str(folder / name), part


def part_name(paths: Sequence[str], part: int, total: int) -> str:
    """File name of a part of some text, which shows how much was left out; sizes are in bytes.

    >>> part_name(["books/Moby Dick.txt", "b.txt"], 437_000, 1_200_000)
    'Moby-Dick-and-1-more-437.0kB-of-1.2MB.jsonl'
    """
    name = re.sub(r"[^\w.-]+", "-", PurePath(paths[0]).name.partition(".")[0])[:60]
    more = f"-and-{len(paths) - 1}-more" if len(paths) > 1 else ""
    return f"{name}{more}-{size(part)}-of-{size(total)}.jsonl".replace(" ", "")
