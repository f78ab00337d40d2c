"""Files to give away: pages by `memlm report`, models by `memlm export`."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memlm_cli import completion
from memlm_cli.console import answer, open_page, say
from memlm_cli.options import Asked

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact
    from stages.errors import ArtifactError

DEFAULT_OUTPUT = Path("memlm-report.html")


def report(
    references: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="REF...",
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
    asked: Asked,
) -> None:
    """Reports -> one self-contained web page: tables, figures, lineage and commands."""
    from memlm_cli.arguments import read_reference
    from memlm_cli.reproduce import page_of
    from stages.pages.lineage import find_reports
    from stages.pages.page import check_figures_folder, write_figures
    from stages.web import check_page_file, write_page

    named = references if references and references != ["-"] else [read_reference(None)]
    check_page_file("--output", output)
    if figures is not None:
        check_figures_folder(figures)
    left_out: dict[Artifact, ArtifactError] = {}
    page = page_of(find_reports(named, asked.open_store(), left_out.__setitem__), left_out=left_out)
    for why in left_out.values():
        say(f"report: left out: {why}")
    if write_page("--output", output, page.html):
        say(f"report: replaced the page that was {output}")
    files = [] if figures is None else write_figures(page, figures)
    if files and not asked.json:
        say(f"report: {len(page.figures)} figures in {files[0].parent}")
    fields = {"path": str(output), "figures": [str(file) for file in files]}
    answer(json.dumps(fields) if asked.json else str(output))
    if open_:
        open_page("report", output)


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
    asked: Asked,
) -> None:
    """Model -> folder for Hugging Face transformers, with tokenizer and model card, but without
    memory.
    """
    from memlm_cli.arguments import read_reference
    from stages.export.export import check_export_folder
    from stages.export.export import export as exported

    # Before the model is loaded: a folder that memlm did not write is never overwritten.
    check_export_folder(output)
    found = exported(asked.open_store().get(read_reference(model), "model"), output, positions)
    fields = {"path": str(output), "architecture": found.form.architecture, "files": found.files}
    answer(json.dumps(fields) if asked.json else str(output))
    say(
        f"export: {found.form.architecture}; to the hub: {shlex.join(['hf', 'upload', 'NAME', str(output)])}"
    )
