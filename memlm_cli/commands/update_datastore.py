"""`memlm update-datastore`."""

from typing import Annotated

import typer

from memlm_cli import completion
from memlm_cli.options import Common
from memlm_cli.run_stage import make_artifact


def update_datastore(
    datastore: Annotated[
        str | None,
        typer.Argument(
            metavar="DATASTORE",
            autocompletion=completion.artifacts("datastore"),
            help="What is to change; it stays as it is. - or none: from stdin.",
        ),
    ] = None,
    add: Annotated[
        str | None,
        typer.Option(
            metavar="TOKENS",
            autocompletion=completion.artifacts("tokens"),
            help="Text to add, tokenized with the datastore's vocabulary.",
        ),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Split of --add that is added (default: train).")] = None,
    forget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DOCUMENT|@FILE",
            help="Documents to leave out: 12, 3-7, the name of one, or a file with one of these a line; repeatable.",
        ),
    ] = None,
    *,
    common: Common,
) -> None:
    """Datastore -> datastore: documents added, and others forgotten; what stays is not encoded again."""
    make_artifact("update-datastore", common, datastore, {"split": split, "forget": forget or None}, {"add": add})
