"""`memlm presets` and `memlm recipes`: lists of named settings and recipes."""

from typing import Annotated

import typer

from memlm_cli import completion
from memlm_cli.command import carried_out_by
from memlm_cli.options import JsonOption


@carried_out_by("memlm_cli.work.listings:presets")
def presets(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            autocompletion=completion.preset_names_alone,
            help="Show the settings of this one.",
        ),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Named training settings: a list, or all settings of one (TOML)."""


@carried_out_by("memlm_cli.work.listings:recipes")
def recipes(json_: JsonOption = False) -> None:
    """List the recipes of memlm: what each makes, from which files, in what time, and on which
    machine.
    """
