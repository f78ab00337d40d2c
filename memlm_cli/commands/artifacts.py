"""`memlm artifacts`: what is in the store."""

from typing import Annotated, Any

import typer

from memlm_cli import completion
from memlm_cli.command import Commands, carried_out_by
from memlm_cli.commands.holds import holds
from memlm_cli.options import StoreOptions
from stages.artifacts.kinds import KINDS

app = Commands(
    help="Look after the store: list, show, verify, graph, rm, gc, holds; push and pull copies.",
    no_args_is_help=True,
)


def _reference(help: str, metavar: str = "REF") -> Any:
    return typer.Argument(autocompletion=completion.artifacts(), metavar=metavar, help=help)


Reference = Annotated[str, _reference("kind/id, kind/name or a folder.")]
BucketAddress = Annotated[
    str,
    typer.Argument(
        metavar="URL", help="s3://BUCKET/PREFIX, gs://, az://, or file:// for a folder."
    ),
]


@app.command("list")
@carried_out_by("memlm_cli.work.artifacts:list_")
def list_(
    kind: Annotated[
        str | None,
        typer.Argument(autocompletion=completion.words(lambda: KINDS), help="Only this kind."),
    ] = None,
    *,
    store_options: StoreOptions,
) -> None:
    """Finished artifacts, in the order of the pipeline; on stderr what is under way or interrupted,
    and whose it is.
    """


@app.command()
@carried_out_by("memlm_cli.work.artifacts:show")
def show(reference: Reference, *, store_options: StoreOptions) -> None:
    """An artifact on a terminal; in a pipe its manifest as JSON: settings, inputs, files, metrics.
    --json: one line.
    """


@app.command()
@carried_out_by("memlm_cli.work.artifacts:verify")
def verify(
    references: Annotated[list[str] | None, _reference("Default: all.", "REF")] = None,
    *,
    store_options: StoreOptions,
) -> None:
    """Hash every file again and compare, with the manifest's own digest and the id.

    Exit 4 if one is damaged.
    """


@app.command()
@carried_out_by("memlm_cli.work.artifacts:graph")
def graph(
    reference: Annotated[str | None, _reference("Only its ancestors and descendants.")] = None,
    *,
    store_options: StoreOptions,
) -> None:
    """Show which artifacts were made from which, as a tree."""


@app.command()
@carried_out_by("memlm_cli.work.artifacts:rm")
def rm(
    references: Annotated[list[str], _reference("What to remove: kind/id or kind/name.", "REF")],
    force: Annotated[
        bool, typer.Option("--force", help="Also what others were made from.")
    ] = False,
    *,
    store_options: StoreOptions,
) -> None:
    """Remove artifacts; refuses what others were made from, unless these go too."""


@app.command()
@carried_out_by("memlm_cli.work.artifacts:gc")
def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    unnamed: Annotated[
        bool, typer.Option("--unnamed", help="Also artifacts that no name and no report leads to.")
    ] = False,
    interrupted: Annotated[
        bool,
        typer.Option("--interrupted", help="Also interrupted work that could still be resumed."),
    ] = False,
    *,
    store_options: StoreOptions,
) -> None:
    """Remove what no command can resume or read: leftovers, and work interrupted over a week ago."""


app.command()(holds)


@app.command()
@carried_out_by("memlm_cli.work.artifacts:push")
def push(reference: Reference, bucket: BucketAddress, *, store_options: StoreOptions) -> None:
    """Copy an artifact, and all that it was made from, into a bucket; keys are those of the
    environment.
    """


@app.command()
@carried_out_by("memlm_cli.work.artifacts:pull")
def pull(
    reference: Annotated[str, typer.Argument(metavar="KIND/ID", help="What was pushed there.")],
    bucket: BucketAddress,
    *,
    store_options: StoreOptions,
) -> None:
    """Copy an artifact, and all that it was made from, from a bucket; every byte is compared with
    its manifest.
    """
