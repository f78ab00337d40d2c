"""The recipe of `memlm try` for a text, made once and kept in the store, so that the same command goes on with it."""

import json
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from memlm_cli.console import say
from memlm_cli.options import Common

if TYPE_CHECKING:
    from stages.text.records import TextFile


def planned(files: Sequence[str], minutes: float, seeds: int, common: Common) -> tuple[Path, list[str]]:
    """The recipe for a text, and the files that it is for: the user's, or one with a part of their text.

    It is for one seed, and leaves the others the time that they need.

    The speed of the machine decides how much is done, and differs from hour to hour: what was chosen before for the
    same text and minutes is kept.
    """
    from pipelines.trial import RULES

    texts = _texts(files)
    work = [RULES, [[text.format, text.digest] for text in texts], minutes, common.device, *([seeds] * (seeds > 1))]
    name = blake2b(json.dumps(work).encode(), digest_size=6).hexdigest()
    recipe = common.store / "trials" / f"{name}.toml"
    part = recipe.with_suffix(".txt")
    if not recipe.is_file():
        say(f"try: reading {len(texts)} file{'s'[: len(texts) != 1]}, and timing this machine")
        _plan(texts, minutes, seeds, recipe, part, common.device)
    return recipe, [str(part)] if part.is_file() else list(files)


def _texts(files: Sequence[str]) -> "list[TextFile]":
    from stages.text.files import file_digest, find_files, format_of
    from stages.text.records import TextFile

    return [TextFile(path, format_of(path), file_digest(path)) for path in find_files(files)]


def _plan(texts: "list[TextFile]", minutes: float, seeds: int, recipe: Path, part: Path, device: str) -> None:
    """Choose what is done, and write the recipe, and the part of the text that is tried if that is not all of it."""
    from pipelines.trial import PRESET, plan_trial, recipe_text
    from pipelines.trial_budget import FEWEST_BYTES, Machine, best_budget
    from stages.artifacts.durable import write_atomically
    from stages.text.automatic import bpe_vocabulary, text_bytes
    from stages.text.files import file_digest
    from stages.text.records import TextFile
    from stages.text.survey import first_bytes, survey
    from stages.training.config import TrainConfig
    from stages.training.presets import load_preset
    from stages.training.speed import training_speed

    training = TrainConfig.model_validate(load_preset(PRESET))
    total = text_bytes(texts)
    timed = total >= FEWEST_BYTES
    speed = training_speed(training, bpe_vocabulary(total), device) if timed else 1.0
    machine = Machine(speed, minutes, seeds)
    budget = best_budget(total, machine, training)
    recipe.parent.mkdir(parents=True, exist_ok=True)
    if budget.bytes < total:
        write_atomically(part, "".join(first_bytes(texts, budget.bytes)))
        texts = [TextFile(str(part), "txt", file_digest(str(part)))]
    else:
        part.unlink(missing_ok=True)
    trial = plan_trial(survey(texts), total, budget, machine, training.batch_tokens * training.accumulate)
    write_atomically(recipe, recipe_text(trial))
