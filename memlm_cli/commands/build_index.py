"""`memlm build-index`."""

from typing import Annotated, Literal

import typer

from memlm_cli import completion
from memlm_cli.options import Common
from memlm_cli.run_stage import make_artifact


def build_index(
    datastore: Annotated[
        str | None,
        typer.Argument(
            metavar="DATASTORE",
            help="Keys to search; - or none: from stdin.",
            autocompletion=completion.artifacts("datastore"),
        ),
    ] = None,
    index: Annotated[
        str | None,
        typer.Option(
            metavar="auto|flat|ivf-flat|ivf-pq|hnsw|FACTORY",
            help="Kind of index, or a FAISS factory string (default: auto, by size).",
        ),
    ] = None,
    metric: Annotated[
        Literal["l2", "ip"] | None,
        typer.Option(help="Squared Euclidean distance or inner product (default: l2)."),
    ] = None,
    recall: Annotated[
        str | None,
        typer.Option(
            metavar="none|SAMPLE",
            help="Keys whose neighbours are compared with exact search, which takes long for many keys "
            "(default: 1,000; of a changed index in proportion to what changed; none: recall is not measured).",
        ),
    ] = None,
    update: Annotated[
        str | None,
        typer.Option(
            metavar="INDEX|none",
            autocompletion=completion.artifacts("index"),
            help="Of a datastore that was updated: the index of the one before, which is changed in place of building "
            "anew where its kind allows (default: the latest of the same settings).",
        ),
    ] = None,
    *,
    common: Common,
) -> None:
    """Datastore -> index: finds the nearest keys."""
    sample = "0" if recall == "none" else recall
    settings = {"index": index, "metric": metric, "recall": sample}
    make_artifact("build-index", common, datastore, settings, {"update": update})
