"""`memlm presets`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from memlm_cli import completion
from memlm_cli.console import answer
from memlm_cli.options import JsonOption
from memlm_cli.tables import answer_table


def presets(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", autocompletion=completion.preset_names_alone, help="Show the settings of this one."
        ),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Named training settings: a list, or all settings of one (TOML)."""
    from stages.training.presets import load_preset, preset_file, preset_names

    if name:
        settings = load_preset(name)  # a file of the user's may be none
        answer(json.dumps(settings) if json_ else preset_file(name).read_text("utf-8").rstrip())
    elif json_:
        answer(json.dumps({preset: _about(preset_file(preset)) for preset in preset_names()}))
    else:
        rows = [(preset, _about(preset_file(preset))) for preset in preset_names()]
        answer_table(("preset", "what it is"), rows)


def _about(file: Path) -> str:
    """The comment at the head of a preset."""
    lines = file.read_text("utf-8").splitlines()
    head = lines[: next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))]
    return " ".join(line.removeprefix("#").strip() for line in head)
