"""Files to give away: pages by `memlm report`, models by `memlm export`."""

from pathlib import Path
from typing import Annotated

import typer

from memlm_cli import completion
from memlm_cli.command import carried_out_by
from memlm_cli.options import StoreOptions

DEFAULT_OUTPUT = Path("memlm-report.html")


@carried_out_by("memlm_cli.work.report:report")
def report(
    references: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="REF",
            autocompletion=completion.artifacts(),
            help="Reports; or a model, index, tokens, …: every report made from it. - or none: from stdin.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", metavar="FILE.html", help="Where to write it.")
    ] = DEFAULT_OUTPUT,
    figures: Annotated[
        Path | None,
        typer.Option(
            "--figures", metavar="DIR", help="Also write each figure as SVG, its numbers as CSV."
        ),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    *,
    store_options: StoreOptions,
) -> None:
    """Reports -> one self-contained web page: tables, figures, lineage and commands."""


@carried_out_by("memlm_cli.work.export:export")
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
        Path,
        typer.Option(
            "--output", metavar="DIR", help="Folder to write; an earlier export there is replaced."
        ),
    ],
    positions: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Positions of a model whose own are sinusoidal (default: its segment length).",
        ),
    ] = None,
    store_options: StoreOptions,
) -> None:
    """Model -> folder for Hugging Face transformers, with tokenizer and model card, but without
    memory.
    """
