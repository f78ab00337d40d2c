"""`memlm report`."""

import json
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
    output: Annotated[Path, typer.Option("--output", metavar="FILE.html", help="Where to write it.")] = DEFAULT_OUTPUT,
    figures: Annotated[
        Path | None,
        typer.Option("--figures", metavar="DIR", help="Also write each figure as SVG, its numbers as CSV."),
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
