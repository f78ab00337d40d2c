"""`memlm import-model`."""

from typing import Annotated

import typer

from memlm_cli import completion
from memlm_cli.options import Common
from memlm_cli.run_stage import make_artifact


def import_model(
    checkpoint: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT",
            help="A folder with config.json and safetensors, FILE.gguf, or hf:NAME[@REVISION] of the Hugging Face hub.",
        ),
    ],
    tokens: Annotated[
        str | None,
        typer.Argument(
            metavar="TOKENS",
            autocompletion=completion.artifacts("tokens"),
            help="Tokens made with its tokenizer; - or none: from stdin.",
        ),
    ] = None,
    segment_length: Annotated[
        int | None,
        typer.Option(
            "--segment-length", help="Inputs of a window (default: 1,024, of an encoder 32, or as many as it can read)."
        ),
    ] = None,
    *,
    common: Common,
) -> None:
    """A pretrained causal language model or encoder, and tokens of its tokenizer -> model."""
    options = {"segment_length": segment_length}
    make_artifact("import-model", common, tokens, options, {"checkpoint": checkpoint})
