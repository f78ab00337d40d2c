"""The recipe of `memlm try` for a text, made once and kept in the store, so that the same command goes on with it."""

import json
import re
import time
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from memlm_cli.console import ConsoleReporter, say
from memlm_cli.options import Common
from stages.numbers import joined, size

if TYPE_CHECKING:
    from pipelines.trial_budget import Shares
    from stages.text.records import TextFile


TRIALS = "trials"
"""Folder of a store for recipes, and for parts of texts, each part in a folder of its recipe."""

NOTABLY_REPEATED = 0.01
"""Share of the text in files that hold the same as others, above which it is said."""


def planned(
    files: Sequence[str], minutes: float, seeds: int, shares: "Shares | None", common: Common
) -> tuple[Path, list[str]]:
    """The recipe for a text, and the files that it is for: the user's, or one with a part of their text.

    It is for one seed, and leaves the others the time that they need.

    The speed of the machine decides how much is done, and differs from hour to hour: what was chosen before for the
    same text and minutes is kept. `shares`: of the text, for valid and test; None: as much as there is time to score.
    """
    began = time.monotonic()
    from pipelines.trial import RULES
    from pipelines.trial_budget import require_enough
    from stages.text.automatic import text_bytes

    texts = _texts(files, common.store)
    total = text_bytes(texts)
    require_enough(total, files[0] if len(files) == 1 else f"The text of {len(files)} files or folders")
    _warn_of_repeats(texts, total)
    work: list[object] = [
        RULES,
        [[text.format, text.digest] for text in texts],
        minutes,
        common.device,
        *([seeds] * (seeds > 1)),
    ]
    work += [shares] if shares else []
    name = blake2b(json.dumps(work).encode(), digest_size=6).hexdigest()
    recipe = common.store / TRIALS / f"{name}.toml"
    parts = recipe.with_suffix("")
    if recipe.is_file():
        say("try: as it was planned before; what is done is not done again, and the time is that of the whole")
    else:
        say(f"try: reading {len(texts)} file{'s'[: len(texts) != 1]}, and timing this machine")
        _plan(texts, total, minutes, seeds, shares, recipe, parts, common.device, began)
    return recipe, [str(part) for part in parts.glob("*.txt")] or list(files)


def part_name(paths: Sequence[str], part: int, total: int) -> str:
    """What a part of some text is called, so that whoever sees the name knows what was left out.

    >>> part_name(["books/Moby Dick.txt", "b.txt"], 437_000, 1_200_000)
    'Moby-Dick-and-1-more-first-437.0kB-of-1.2MB.txt'
    """
    first = re.sub(r"[^\w.-]+", "-", PurePath(paths[0]).name.partition(".")[0])[:60]
    more = f"-and-{len(paths) - 1}-more" if len(paths) > 1 else ""
    return f"{first}{more}-first-{size(part)}-of-{size(total)}".replace(" ", "") + ".txt"


def _texts(files: Sequence[str], store: Path) -> "list[TextFile]":
    from stages.text.files import file_digest, find_files, format_of
    from stages.text.records import TextFile

    return [TextFile(path, format_of(path), file_digest(path)) for path in find_files(files, store)]


def _warn_of_repeats(texts: "Sequence[TextFile]", total: int) -> None:
    """Say so where a notable share of the text stands in other files, too."""
    from stages.text.automatic import text_bytes

    first = {text.digest: text for text in reversed(texts)}
    again = [text for text in texts if text is not first[text.digest]]
    if text_bytes(again) > NOTABLY_REPEATED * total:
        say(
            f"try: {again[0].path} holds the same text as {first[again[0].digest].path}: what is learned of the one is "
            "tested in the other, and every memory seems to gain; name a text once"
        )


def _plan(
    texts: "list[TextFile]",
    total: int,
    minutes: float,
    seeds: int,
    shares: "Shares | None",
    recipe: Path,
    parts: Path,
    device: str,
    began: float,
) -> None:
    """Choose what is done, and write the recipe; into `parts` the part of the text that is tried, if not all is."""
    from pipelines.trial import plan_trial, recipe_text, training_settings
    from pipelines.trial_budget import Machine, best_budget
    from stages.artifacts.durable import write_atomically
    from stages.text.automatic import bpe_vocabulary
    from stages.text.files import file_digest
    from stages.text.records import TextFile
    from stages.text.survey import first_bytes, survey, within
    from stages.text.token_size import token_bytes
    from stages.training.speed import training_speed

    training = training_settings()
    with ConsoleReporter("try") as reporter:
        speed = training_speed(training, bpe_vocabulary(total), device, reporter)
    say("try: counting the tokens of the text")
    with ConsoleReporter("try"):
        measured = token_bytes(texts)
    machine = Machine(speed, minutes, seeds, time.monotonic() - began)
    budget = best_budget(total, measured, machine, training, shares)
    recipe.parent.mkdir(parents=True, exist_ok=True)
    for left in parts.glob("*.txt"):  # by a plan that was interrupted
        left.unlink()
    if budget.bytes < total:
        tried = list(within(texts, budget.bytes))
        if len(tried) < len(texts):
            say(f"try: the part that there is time for is of {joined([text.path for text in tried])} alone")
        part = parts / part_name([text.path for text in tried], budget.bytes, total)
        write_atomically(part, "".join(first_bytes(tried, budget.bytes)))
        texts = [TextFile(str(part), "txt", file_digest(str(part)))]
        measured = token_bytes(texts)
    trial = plan_trial(survey(texts), total, budget, measured, machine, training, shares)
    write_atomically(recipe, recipe_text(trial))
