"""Work of `memlm presets` and `memlm recipes`."""

import json
from pathlib import Path

from memlm_cli.console import answer, answers_on_terminal, say
from memlm_cli.options import JsonOption
from memlm_cli.tables import answer_table
from pipelines.recipe import Recipe, find_recipe, read_recipe, shipped_recipes
from stages.training.presets import load_preset, preset_file, preset_names


def presets(name: str | None, json_: JsonOption) -> None:
    """Carry out `memlm presets`."""
    if name:
        settings = load_preset(name)  # the user's file may not be a preset
        answer(json.dumps(settings) if json_ else preset_file(name).read_text("utf-8").rstrip())
    elif json_:
        answer(json.dumps({preset: _about(preset_file(preset)) for preset in preset_names()}))
    else:
        rows = [(preset, _about(preset_file(preset))) for preset in preset_names()]
        answer_table(("preset", "what it is"), rows)


def _about(file: Path) -> str:
    """The comment at the head of a preset."""
    lines = file.read_text("utf-8").splitlines()
    head = lines[
        : next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    ]
    return " ".join(line.removeprefix("#").strip() for line in head)


def recipes(json_: JsonOption) -> None:
    """Carry out `memlm recipes`."""
    shipped = {name: read_recipe(find_recipe(name)) for name in shipped_recipes()}
    if json_:
        fields = {"description", "time", "hardware", "inputs"}
        answer(
            json.dumps(
                {name: recipe.model_dump(include=fields) for name, recipe in shipped.items()}
            )
        )
    else:
        short = answers_on_terminal()
        rows = [
            (name, recipe.description, _needs(recipe, short=short))
            for name, recipe in shipped.items()
        ]
        answer_table(("recipe", "what it makes", "files, time, hardware"), rows)
        if short:
            say(f"files: {USUAL} where none are named")


USUAL = "--train --valid --test"


def _needs(recipe: Recipe, *, short: bool) -> str:
    """`--train, ten minutes, two cores`: options for files, time, machine; `short`: without the
    usual files.
    """
    files = " ".join(f"--{name}" for name in recipe.inputs) or "no files"
    files = "" if short and files == USUAL else files
    return ", ".join(filter(None, (files, recipe.time or "not measured", recipe.hardware)))
