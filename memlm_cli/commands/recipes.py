"""`memlm recipes`."""

import json
from typing import TYPE_CHECKING

from memlm_cli.console import answer
from memlm_cli.options import JsonOption
from memlm_cli.tables import answer_table

if TYPE_CHECKING:
    from pipelines.recipe import Recipe


def recipes(json_: JsonOption = False) -> None:
    """The recipes that memlm run takes by name: what each makes, of which files, how long that takes, and on what."""
    from pipelines.recipe import find_recipe, read_recipe, shipped_recipes

    found = {name: read_recipe(find_recipe(name)) for name in shipped_recipes()}
    if json_:
        fields = {"description", "time", "hardware", "inputs"}
        answer(json.dumps({name: recipe.model_dump(include=fields) for name, recipe in found.items()}))
    else:
        rows = [(name, recipe.description, _needs(recipe)) for name, recipe in found.items()]
        answer_table(("recipe", "what it makes", "files, time, hardware"), rows)


def _needs(recipe: "Recipe") -> str:
    """`--train --valid --test, under an hour, two cores`: options that name files, how long, on what."""
    files = " ".join(f"--{name}" for name in recipe.inputs) or "none"
    return ", ".join(filter(None, (files, recipe.time or "not measured", recipe.hardware)))
