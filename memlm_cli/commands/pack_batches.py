"""`memlm pack-batches`."""

from typing import Annotated, Literal

import typer

from memlm_cli import completion
from memlm_cli.options import Common
from memlm_cli.run_stage import make_artifact


def pack_batches(
    tokens: Annotated[
        str | None,
        typer.Argument(
            metavar="TOKENS",
            autocompletion=completion.artifacts("tokens"),
            help="Whose training split to pack; - or none: from stdin.",
        ),
    ] = None,
    segment_length: Annotated[
        int | None, typer.Option("--segment-length", help="Tokens a segment (default: 128).")
    ] = None,
    k: Annotated[
        int | None, typer.Option(help="Matches among which a segment's successor is looked for (default: 20).")
    ] = None,
    bm25: Annotated[
        Literal["lucene", "okapi"] | None,
        typer.Option(help="Lucene's BM25, or rank-bm25's BM25Okapi (default: lucene)."),
    ] = None,
    engine: Annotated[
        Literal["fast", "rank-bm25"] | None,
        typer.Option(help="rank-bm25: the package of that name, okapi alone, for small texts (default: fast)."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the first segment, and where no match is free.")] = None,
    exclude: Annotated[
        Literal["self", "document"] | None,
        typer.Option(help="document: links across documents only, as with a datastore of others (default: self)."),
    ] = None,
    apart: Annotated[
        int | None,
        typer.Option(help="With --exclude document: segments in a row of which no two share one (default: 16)."),
    ] = None,
    *,
    common: Common,
) -> None:
    """Tokens -> batches: segments that share many words follow each other, for trime-ext."""

    options = {
        "segment_length": segment_length,
        "k": k,
        "bm25": bm25,
        "engine": engine,
        "seed": seed,
        "exclude": exclude,
        "apart": apart,
    }
    make_artifact("pack-batches", common, tokens, options)
