"""`memlm compare`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memlm_cli import completion
from memlm_cli.command import carried_out_by
from memlm_cli.options import HtmlOption, OptionsOf, StoreOptions

if TYPE_CHECKING:
    from stages.comparison.settings import ComparisonSettings


@carried_out_by("memlm_cli.work.compare:compare")
def compare(
    reports: Annotated[
        list[str],
        typer.Argument(
            metavar="REPORT",
            autocompletion=completion.artifacts("report", "matrix"),
            help="The report that is compared with, and the other; - or none: from stdin. Three and more: means and "
            "intervals over those that differ by their seed alone.",
        ),
    ],
    csv: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="Also write every token's scores there."),
    ] = None,
    html: HtmlOption = None,
    *,
    settings: Annotated[
        "ComparisonSettings", OptionsOf("stages.comparison.settings:ComparisonSettings")
    ],
    store_options: StoreOptions,
) -> None:
    """Two reports with token scores -> which is better, where, by how much and how certainly; more:
    means over seeds.

    Two matrices of the same tasks -> both side by side; more: means over seeds."""
