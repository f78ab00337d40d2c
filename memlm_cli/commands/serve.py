"""`memlm serve`: a model with its memories answers over HTTP."""

from typing import TYPE_CHECKING, Annotated

import typer

from memlm_cli import completion
from memlm_cli.command import carried_out_by
from memlm_cli.options import OptionsOf, ReadOptions, StoreOptions

if TYPE_CHECKING:
    from stages.serving.settings import ServeSettings


@carried_out_by("memlm_cli.work.serve:serve")
def serve(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="REF",
            autocompletion=completion.artifacts("report", "index", "model", "neighbors"),
            help="A report, whose model and memories are read; or a model, index or neighbors; - or left out: read "
            "from stdin.",
        ),
    ] = None,
    *,
    where: Annotated["ServeSettings", OptionsOf("stages.serving.settings:ServeSettings")],
    reading: ReadOptions,
    store_options: StoreOptions,
) -> None:
    """Answer over HTTP with a model and its memories: completions, scores of prompts, sources."""
