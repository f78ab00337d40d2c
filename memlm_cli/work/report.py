"""Work of `memlm report`."""

import json
from pathlib import Path

from memlm_cli.arguments import read_reference
from memlm_cli.console import answer, open_page, say
from memlm_cli.options import StoreOptions
from memlm_cli.reproduce import page_of
from stages.artifacts.artifact import Artifact
from stages.errors import ArtifactError
from stages.pages.lineage import find_reports
from stages.pages.page import check_figures_folder, write_figures
from stages.web import check_page_file, write_page


def report(
    references: list[str] | None,
    output: Path,
    figures: Path | None,
    open_: bool,
    *,
    store_options: StoreOptions,
) -> None:
    """Carry out `memlm report`."""
    named = references if references and references != ["-"] else [read_reference(None)]
    check_page_file("--output", output)
    if figures is not None:
        check_figures_folder(figures)
    left_out: dict[Artifact, ArtifactError] = {}
    page = page_of(
        find_reports(named, store_options.open_store(), left_out.__setitem__), left_out=left_out
    )
    for why in left_out.values():
        say(f"report: left out: {why}")
    if write_page("--output", output, page.html):
        say(f"report: replaced the page that was {output}")
    files = [] if figures is None else write_figures(page, figures)
    if files and not store_options.json:
        say(f"report: {len(page.figures)} figures in {files[0].parent}")
    fields = {"path": str(output), "figures": [str(file) for file in files]}
    answer(json.dumps(fields) if store_options.json else str(output))
    if open_:
        open_page("report", output)
