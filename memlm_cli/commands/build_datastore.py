"""`memlm build-datastore`."""

from typing import Annotated, Literal

import typer

from memlm_cli import completion
from memlm_cli.options import Common, LongLengthOption, MemLengthOption
from memlm_cli.run_stage import make_artifact


def build_datastore(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL", help="Its encoder; - or none: from stdin.", autocompletion=completion.artifacts("model")
        ),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Split to store (default: train).")] = None,
    tokens: Annotated[
        str | None,
        typer.Option(
            metavar="TOKENS",
            autocompletion=completion.artifacts("tokens"),
            help="Another corpus than the model's, with its vocabulary.",
        ),
    ] = None,
    key: Annotated[
        Literal["ffn-input", "hidden"] | None,
        typer.Option(help="Representation to search by (default: ffn-input, or hidden where there is none)."),
    ] = None,
    dtype: Annotated[
        Literal["float16", "float32"] | None,
        typer.Option(help="Of the stored keys (default: float16)."),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(help="Tokens a window reads (default: the model's segment length)."),
    ] = None,
    stride: Annotated[
        int | None, typer.Option(help="Tokens between windows (default: --context; of an encoder 1).")
    ] = None,
    mem_length: MemLengthOption = None,
    long_length: LongLengthOption = None,
    reset: Annotated[
        Literal["none", "document"] | None,
        typer.Option(help="Read each document by itself, so that it can be forgotten whole (default: none)."),
    ] = None,
    fraction: Annotated[float | None, typer.Option(help="Share of the split to store (default: 1).")] = None,
    *,
    common: Common,
) -> None:
    """Model -> datastore: the key and the value of every token of a split."""
    make_artifact(
        "build-datastore",
        common,
        model,
        {
            "split": split,
            "key": key,
            "dtype": dtype,
            "context": context,
            "stride": stride,
            "mem_length": mem_length,
            "long_length": long_length,
            "reset": reset,
            "fraction": fraction,
        },
        {"tokens": tokens},
    )
