"""`memlm export`."""

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from memlm_cli import completion
from memlm_cli.console import answer, say
from memlm_cli.options import Asked


def export(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            autocompletion=completion.artifacts("model"),
            help="A model; - or none: from stdin.",
            show_default=False,
        ),
    ] = None,
    *,
    output: Annotated[
        Path, typer.Option("--output", metavar="DIR", help="Folder to write; an earlier export there is replaced.")
    ],
    positions: Annotated[
        int | None,
        typer.Option(min=1, help="Positions of a model whose own are sinusoidal (default: its segment length)."),
    ] = None,
    asked: Asked,
) -> None:
    """Model -> folder for Hugging Face transformers, with tokenizer and model card, but without memory."""
    from memlm_cli.arguments import read_reference
    from stages.export.export import check_export_folder
    from stages.export.export import export as exported

    # Before the model is loaded: a folder that memlm did not write is never overwritten.
    check_export_folder(output)
    found = exported(asked.open_store().get(read_reference(model), "model"), output, positions)
    fields = {"path": str(output), "architecture": found.form.architecture, "files": found.files}
    answer(json.dumps(fields) if asked.json else str(output))
    say(f"export: {found.form.architecture}; to the hub: {shlex.join(['hf', 'upload', 'NAME', str(output)])}")
