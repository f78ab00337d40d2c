"""The recipe of `memlm try` for a text, made once and kept in the store, so that the same command goes on with it."""

import json
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from memlm_cli.console import say
from memlm_cli.options import Common
from stages.numbers import joined, size

if TYPE_CHECKING:
    from pipelines.trial_budget import Budget, Machine, Shares
    from stages.text.records import TextFile
    from stages.text.sample import Part

TRIALS = "trials"
"""Folder of a store for recipes, and for parts of texts, each part in a folder of its recipe."""


def planned(
    files: Sequence[str], minutes: float, seeds: int, shares: "Shares | None", common: Common, *, replan: bool
) -> tuple[Path, list[str]]:
    """The recipe for a text, and the files that it is for: the user's, or one with a part of their text.

    It is for one seed, and leaves the others the time that they need.

    The speed of the machine decides how much is done, and differs from hour to hour: what was chosen before for the
    same text and minutes is kept, and resumed, until `replan` asks for another plan in its place. `shares`: of the
    text, for valid and test; None: as much as there is time to score.
    """
    began = time.monotonic()
    from pipelines.trial import FEWEST_DOCUMENTS, RULES, require_lines
    from pipelines.trial_budget import Machine, require_enough, require_time
    from stages.text.survey import count_lines, text_bytes

    texts = _texts(files, common.store)
    total = text_bytes(texts)
    require_enough(total, files[0] if len(files) == 1 else f"The text of {len(files)} files or folders")
    work: list[object] = [
        RULES,
        [[text.format, text.digest] for text in texts],
        minutes,
        common.device,
        *([seeds] * (seeds > 1)),
    ]
    work += [shares] if shares else []
    # Whatever decides the plan is in its name; the speed of the machine, which changes by the hour, is not.
    name = blake2b(json.dumps(work).encode(), digest_size=6).hexdigest()
    recipe = common.store / TRIALS / f"{name}.toml"
    if recipe.is_file() and not replan:
        say(
            "try: as it was planned before; what is done is not done again, and the time is that of the whole "
            "(--replan times this machine, and plans anew)"
        )
    else:
        require_lines(count_lines(texts, FEWEST_DOCUMENTS))
        machine = Machine(0.0, minutes, seeds, time.monotonic() - began)
        require_time(machine)
        say(f"try: reading {len(texts)} file{'s'[: len(texts) != 1]}, and counting tokens")
        _plan(texts, total, machine, shares, recipe, common.device, began)
    return recipe, [str(part) for part in _parts(recipe)] or list(files)


def _parts(recipe: Path) -> list[Path]:
    """The file that holds the part of the text that a recipe is for; empty where it is for all."""
    return [part for part in recipe.with_suffix("").glob("*") if part.suffix in (".txt", ".jsonl")]


def part_name(paths: Sequence[str], part: int, total: int, records: tuple[int, int] | None = None) -> str:
    """Name of a part of some text, which shows what was left out.

    >>> part_name(["books/Moby Dick.txt", "b.txt"], 437_000, 1_200_000)
    'Moby-Dick-and-1-more-first-437.0kB-of-1.2MB.txt'
    >>> part_name(["books.jsonl"], 48_100, 900_000, (3, 60))
    'books-3-of-60-records-48.1kB-of-900.0kB.jsonl'
    """
    what, ending = ("first", "txt") if records is None else (f"{records[0]}-of-{records[1]}-records", "jsonl")
    return f"{_name_of(paths)}-{what}-{size(part)}-of-{size(total)}".replace(" ", "") + f".{ending}"


def _name_of(paths: Sequence[str]) -> str:
    first = re.sub(r"[^\w.-]+", "-", PurePath(paths[0]).name.partition(".")[0])[:60]
    return f"{first}-and-{len(paths) - 1}-more" if len(paths) > 1 else first


def _texts(files: Sequence[str], store: Path) -> "list[TextFile]":
    from stages.text.records import TextFile
    from stages.tokenization.corpora import find_files

    found = find_files(files, store, lambda sentence: say(f"try: {sentence}"))
    return [TextFile.of(path) for path in found]


def _plan(
    texts: "list[TextFile]",
    total: int,
    machine: "Machine",
    shares: "Shares | None",
    recipe: Path,
    device: str,
    began: float,
) -> None:
    """Choose what is done, and write the recipe; beside it the part of the text that is tried, if not all is."""
    from pipelines.trial import plan_trial, recipe_text, training_settings
    from pipelines.trial_budget import Planner, require_time
    from stages.artifacts.durable import write_atomically
    from stages.text.sample import is_tested_by_few, record_sizes
    from stages.text.survey import bpe_vocabulary, survey, token_bytes
    from stages.training.speed import training_speed

    training = training_settings()
    folder = recipe.with_suffix("")
    measured = token_bytes(texts)
    machine = replace(machine, spent=time.monotonic() - began)
    require_time(machine)
    least = Planner(measured, machine, training, shares).least_speed()
    say("try: timing this machine")
    speed = training_speed(training, bpe_vocabulary(total), device, least)
    recipe.parent.mkdir(parents=True, exist_ok=True)
    recipe.unlink(missing_ok=True)  # before its part: a recipe without one is taken for one of all of the text
    for left in _parts(recipe):
        left.unlink()
    machine = replace(machine, speed=speed, spent=time.monotonic() - began)
    planner = Planner(measured, machine, training, shares)
    budget = planner.best(total)
    taken = None
    if budget.bytes < total or is_tested_by_few(record_sizes(texts), int(budget.test * total)):
        part, taken = _part(texts, budget, total, folder)
        texts = [part]
        planner = replace(planner, token_bytes=token_bytes(texts))
    surveyed = survey(texts)
    if taken is not None:
        budget = replace(budget, bytes=surveyed.bytes)
    trial = plan_trial(surveyed, total, budget, planner, taken)
    write_atomically(recipe, recipe_text(trial))


def _part(texts: "list[TextFile]", budget: "Budget", total: int, folder: Path) -> "tuple[TextFile, Part | None]":
    """A part of a text in a file: records from all over it, and which; else its beginning, and None."""
    from stages.artifacts.durable import write_atomically
    from stages.text.records import TextFile
    from stages.text.sample import Part, choose_records, record_lines, record_sizes
    from stages.text.survey import first_bytes, within

    most, sizes = budget.bytes, record_sizes(texts)
    chosen = choose_records(sizes, most, int(budget.test * most))
    taken = Part.of_ranges(chosen, sizes) if chosen else None
    if taken is not None:
        read = sum(stop - start for _, start, stop in chosen)
        part = folder / part_name([text.path for text in texts], read, total, taken[:2])
        write_atomically(part, "".join(record_lines(texts, chosen)))
    else:
        tried = list(within(texts, most))
        if len(tried) < len(texts):
            say(f"try: the part that there is time for is of {joined([text.path for text in tried])} alone")
        part = folder / part_name([text.path for text in tried], most, total)
        write_atomically(part, "".join(first_bytes(tried, most)))
    return TextFile.of(str(part)), taken
