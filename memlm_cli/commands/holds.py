"""`memlm artifacts holds`: who still holds a document."""

from pathlib import Path
from typing import Annotated

import typer

from memlm_cli.command import carried_out_by
from memlm_cli.options import StoreOptions


@carried_out_by("memlm_cli.work.holds:holds")
def holds(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME|@FILE...", help="Names of documents, or a file with a name on each line."
        ),
    ] = None,
    text: Annotated[
        Path | None,
        typer.Option("--text", metavar="FILE", help="A text that has no name in the store."),
    ] = None,
    receipt: Annotated[
        Path | None,
        typer.Option(
            "--receipt",
            metavar="FILE",
            help="What update-datastore --receipt wrote: look again, and write what remains.",
        ),
    ] = None,
    copied: Annotated[
        int,
        typer.Option(
            "--copied", metavar="N", min=0, help="Fewest tokens of a copy; 0: look for none."
        ),
    ] = 50,
    bucket: Annotated[
        str | None,
        typer.Option(
            "--bucket",
            metavar="URL",
            help="Also look at the copies that artifacts push made there.",
        ),
    ] = None,
    *,
    store_options: StoreOptions,
) -> None:
    """Name the artifacts that still hold a document, and other documents with the same text.

    Exit 0: nobody holds it; 1: somebody does; 4: an artifact could not be looked at.
    """
