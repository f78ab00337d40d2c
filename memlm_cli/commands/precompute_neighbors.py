"""`memlm precompute-neighbors`."""

from typing import Annotated

import typer

from memlm_cli import completion
from memlm_cli.options import Common
from memlm_cli.run_stage import make_artifact


def precompute_neighbors(
    index: Annotated[
        str | None,
        typer.Argument(
            metavar="INDEX",
            autocompletion=completion.artifacts("index"),
            help="Where to search; - or none: from stdin.",
        ),
    ] = None,
    queries: Annotated[str | None, typer.Option(metavar="SPLITS", help="train,valid,… (default: every split).")] = None,
    tokens: Annotated[
        str | None,
        typer.Option(
            metavar="TOKENS",
            autocompletion=completion.artifacts("tokens"),
            help="Queries of another corpus than the encoder's.",
        ),
    ] = None,
    k: Annotated[int | None, typer.Option(help="Neighbours a token (default: 4).")] = None,
    exclude: Annotated[
        str | None,
        typer.Option(
            metavar="self|window:N|document|none",
            help="Rows that may not be found by their own split (default: self).",
        ),
    ] = None,
    exact: Annotated[bool | None, typer.Option("--exact", help="Re-rank by distances to the stored keys.")] = None,
    *,
    common: Common,
) -> None:
    """Index -> neighbors: the nearest rows of every token's context."""
    make_artifact(
        "precompute-neighbors",
        common,
        index,
        {"queries": None if queries is None else queries.split(","), "k": k, "exclude": exclude, "exact": exact},
        {"tokens": tokens},
    )
