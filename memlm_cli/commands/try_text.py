"""`memlm try`; the recipe for a text is made once and kept in the store, so that the same command
resumes it."""

from pathlib import Path
from typing import Annotated

import typer

from memlm_cli.command import carried_out_by
from memlm_cli.commands.outputs import DEFAULT_OUTPUT
from memlm_cli.options import Common

Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILES",
        help="Text files, folders, .jsonl, .csv, .tsv, each also .gz/.xz/.zst; .parquet, .arrow; patterns "
        "('FOLDER/**/*.py'); builtin:pydocs; -: text on standard input.",
    ),
]
Seeds = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Train with N seeds, in the same time, and show means and intervals.",
    ),
]
Split = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,C",
        help="Shares of train, valid and test (default: valid and test as large as there is time to score, a tenth "
        "each of a whole text).",
    ),
]
Column = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Column (.csv, .tsv, .parquet, .arrow) or field (.jsonl) that holds the text (default: text).",
    ),
]
Open = Annotated[
    bool,
    typer.Option(
        "--open/--no-open", help="Open the page, where there are a terminal and a browser."
    ),
]
Replan = Annotated[
    bool,
    typer.Option(
        "--replan",
        help="Time this machine again, and plan anew, where the same text was tried at another speed.",
    ),
]


@carried_out_by("memlm_cli.work.try_text:try_text")
def try_text(
    files: Files,
    minutes: Annotated[float, typer.Option(help="How long it may take, about.")] = 10.0,
    seeds: Seeds = None,
    split: Split = None,
    column: Column = None,
    output: Annotated[
        Path, typer.Option("--output", metavar="FILE.html", help="Where to write the page.")
    ] = DEFAULT_OUTPUT,
    open_: Open = True,
    replan: Replan = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what is done, what would run, and why.")
    ] = False,
    *,
    common: Common,
) -> None:
    """Text -> web page: how much a cache, kNN-LM and TRIME help on this text; all settings are
    chosen for you.

    Each command that it runs is shown, to be copied, changed and run again. After a stop the same
    command resumes.
    """
