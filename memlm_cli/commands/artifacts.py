"""`memlm artifacts`: what is in the store."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memlm_cli import completion
from memlm_cli.command import Commands
from memlm_cli.commands.holds import holds
from memlm_cli.console import answer, answers_on_terminal, say
from memlm_cli.exit_codes import resumable
from memlm_cli.options import Asked
from memlm_cli.progress import ConsoleReporter
from memlm_cli.tables import answer_table
from stages.artifacts.kinds import KINDS
from stages.errors import ArtifactError, UsageError, did_you_mean
from stages.numbers import joined, size

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact
    from stages.artifacts.store import Store

MEGABYTE = 10**6
RESUMES = "the same command resumes it, and --interrupted removes it"
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
def list_(
    kind: Annotated[
        str | None,
        typer.Argument(autocompletion=completion.words(lambda: KINDS), help="Only this kind."),
    ] = None,
    *,
    asked: Asked,
) -> None:
    """Finished artifacts, in the order of the pipeline; on stderr what is under way or interrupted,
    and whose it is.
    """
    from stages.artifacts.garbage import unfinished

    if kind and kind not in KINDS:
        raise UsageError(f"There is no kind {kind!r}; {did_you_mean(kind, KINDS)}")
    opened = asked.open_store()
    everything = opened.artifacts()  # of other kinds, too: they show the origin of each
    found = [one for one in everything if kind in (None, one.kind)]
    if asked.json:
        answer(json.dumps(_summaries(found, opened)))
        return
    if found:
        names = _names(opened)
        inputs = {one.reference: one.parents for one in everything}
        rows = [_row(artifact, names, inputs) for artifact in found]
        answer_table(("artifact", "name", "size", "made", "from"), rows, whole=False)
    else:
        say(f"nothing in {opened.root} yet")
    readable = {artifact.reference for artifact in found}
    for reference in opened.references():
        if reference not in readable and kind in (None, reference.partition("/")[0]):
            fault = _unreadable(opened, reference)
            say(f"{fault}: {reference}, which memlm artifacts verify {reference} tells more of")
    for draft in unfinished(opened):
        if kind in (None, draft.path.parent.name):
            say(
                f"unfinished: {draft.path.relative_to(opened.root)}, {size(draft.bytes)}, {draft.state}"
            )


def _unreadable(store: "Store", reference: str) -> str:
    """Word for an artifact whose manifest cannot be read: damage, or another version's work."""
    from stages.artifacts.manifest import UncheckedArtifact

    try:
        store.open(reference)
    except UncheckedArtifact:
        return "of another version"
    except ArtifactError:
        return "damaged"
    return "made just now"


@app.command()
def show(reference: Reference, *, asked: Asked) -> None:
    """An artifact on a terminal; in a pipe its manifest as JSON: settings, inputs, files, metrics.
    --json: one line.
    """
    opened = asked.open_store()
    artifact = opened.get(reference)
    if answers_on_terminal() and not asked.json:
        from memlm_cli.results.show import artifact_rows

        answer_table(("", ""), artifact_rows(artifact, _names(opened).get(artifact.reference, [])))
        say(
            f"all settings, figures and digests: {artifact.advise('artifacts', 'show', reference, '--json')}"
        )
        return
    manifest = json.loads(artifact.manifest.dumps())
    manifest["files"] = manifest.pop("files")  # the long table of digests comes last
    answer(json.dumps(manifest, indent=None if asked.json else 2))


@app.command()
def verify(
    references: Annotated[list[str] | None, _reference("Default: all.", "REF...")] = None,
    *,
    asked: Asked,
) -> None:
    """Hash every file again and compare, with the manifest's own digest and the id.

    Exit 4 if one is damaged.
    """
    from stages.artifacts.manifest import UncheckedArtifact

    opened = asked.open_store()
    chosen = references or opened.references()
    if not chosen:
        say(f"nothing in {opened.root} yet")
    damaged: list[str] = []
    unchecked: list[str] = []
    with ConsoleReporter("artifacts verify") as reporter:
        for reference, found in _verified(opened, chosen, reporter):
            with reporter.aside():
                if isinstance(found, ArtifactError):
                    say(str(found))
                    (unchecked if isinstance(found, UncheckedArtifact) else damaged).append(
                        reference
                    )
                elif not asked.json:
                    answer(f"{reference} is as it was made")
    if asked.json:
        answer(
            json.dumps(
                [
                    {"reference": r, "damaged": r in damaged, "unchecked": r in unchecked}
                    for r in chosen
                ]
            )
        )
    if damaged:
        raise ArtifactError(f"{len(damaged)} of {len(chosen)} are damaged: {', '.join(damaged)}")
    if unchecked:
        raise ArtifactError(
            f"{len(unchecked)} of {len(chosen)} cannot be checked here: {', '.join(unchecked)}"
        )


@app.command()
def graph(
    reference: Annotated[str | None, _reference("Only its ancestors and descendants.")] = None,
    *,
    asked: Asked,
) -> None:
    """Show which artifacts were made from which, as a tree."""
    from memlm_cli.lineage_tree import lineage_tree, relatives

    opened = asked.open_store()
    artifacts = opened.artifacts()
    if reference:
        artifacts = relatives(opened.open(reference).reference, artifacts)
    if asked.json:
        answer(json.dumps(_summaries(artifacts, opened)))
    else:
        answer(
            lineage_tree(
                artifacts,
                {reference: ", ".join(names) for reference, names in _names(opened).items()},
            )
        )


@app.command()
def rm(
    references: Annotated[list[str], _reference("What to remove: kind/id or kind/name.", "REF...")],
    force: Annotated[
        bool, typer.Option("--force", help="Also what others were made from.")
    ] = False,
    *,
    asked: Asked,
) -> None:
    """Remove artifacts; refuses what others were made from, unless these go too."""
    from stages.artifacts.garbage import folder_bytes

    opened = asked.open_store()
    folders = dict.fromkeys(opened.own_folder(reference) for reference in references)
    going = [f"{folder.parent.name}/{folder.name}" for folder in folders]
    if not force:
        _require_unused(opened, going)
    removed = []
    for reference, folder in zip(going, folders, strict=True):
        freed = folder_bytes(folder)
        with resumable("what was said to be removed is gone, and the rest is as it was"):
            opened.remove(reference)
        removed.append({"reference": reference, "bytes": freed})
        if not asked.json:
            answer(f"removed {reference} ({size(freed)})")
    if asked.json:
        answer(json.dumps(removed))


@app.command()
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
    asked: Asked,
) -> None:
    """Remove what no command can resume or read: leftovers, and work interrupted over a week ago."""
    from stages.artifacts.garbage import find_garbage, remove_garbage, unfinished

    opened = asked.open_store()
    garbage = find_garbage(opened, unnamed=unnamed, interrupted=interrupted)
    folders = [str(g.path.relative_to(opened.root)) for g in garbage]
    if asked.json:
        rows = zip(folders, garbage, strict=True)
        answer(
            json.dumps([{"folder": folder, "bytes": g.bytes, "why": g.why} for folder, g in rows])
        )
    elif garbage:
        sizes = [size(g.bytes) for g in garbage]
        answer_table(
            ("folder", "size", "why"), zip(folders, sizes, (g.why for g in garbage), strict=True)
        )
    garbage_paths = {item.path for item in garbage}
    for draft in unfinished(opened):
        if draft.path not in garbage_paths:
            folder = draft.path.relative_to(opened.root)
            advice = "" if draft.alive else f"; {RESUMES}"
            say(f"kept: {folder}, {size(draft.bytes)}, {draft.state}{advice}")
    if not dry_run:
        with resumable("what was removed is gone, and the same command removes the rest"):
            remove_garbage(opened, garbage)
    if not asked.json:
        answer(f"{size(sum(g.bytes for g in garbage))} {'would be' if dry_run else 'was'} freed")


app.command()(holds)


@app.command()
def push(reference: Reference, bucket: BucketAddress, *, asked: Asked) -> None:
    """Copy an artifact, and all that it was made from, into a bucket; keys are those of the
    environment.
    """
    from stages.artifacts.copies import push as copy

    with resumable("whole artifacts that were copied stay, and the same command copies the rest"):
        _answer_copied("push", copy, reference, bucket, asked)


@app.command()
def pull(
    reference: Annotated[str, typer.Argument(metavar="KIND/ID", help="What was pushed there.")],
    bucket: BucketAddress,
    *,
    asked: Asked,
) -> None:
    """Copy an artifact, and all that it was made from, from a bucket; every byte is compared with
    its manifest.
    """
    from stages.artifacts.copies import pull as copy

    with resumable():
        _answer_copied("pull", copy, reference, bucket, asked)


def _answer_copied(
    way: str, copy: Callable[..., list[str]], reference: str, bucket: str, asked: Asked
) -> None:
    from stages.artifacts.bucket import Bucket

    with ConsoleReporter(f"artifacts {way}") as reporter:
        copied = copy(reference, asked.open_store(), Bucket(bucket), reporter)
    if asked.json:
        answer(json.dumps(copied))
    elif copied:
        answer("\n".join(copied))
    else:
        say(f"nothing to copy: all of it is in {bucket if way == 'push' else asked.store} already")


def _verified(
    store: "Store", references: Iterable[str], reporter: ConsoleReporter
) -> Iterator[tuple[str, "Artifact | ArtifactError"]]:
    """Each reference with its artifact if every byte is right, else with the error."""
    found: dict[str, Artifact | ArtifactError] = {}
    for reference in references:
        try:
            found[reference] = store.open(reference)
        except ArtifactError as error:
            found[reference] = error
    total = sum(one.manifest.bytes for one in found.values() if not isinstance(one, ArtifactError))
    done = 0

    def read(count: int) -> None:
        nonlocal done
        done += count
        reporter.progress(done // MEGABYTE, total // MEGABYTE, "MB read")

    for reference, one in found.items():
        try:
            if not isinstance(one, ArtifactError):
                store.check_files(one, every_byte=True, read=read)
            yield reference, one
        except ArtifactError as error:
            yield reference, error


def _require_unused(store: "Store", going: list[str]) -> None:
    """Raises: UsageError if an artifact that stays needs one that goes; ArtifactError if this
    cannot be checked.

    The message names all artifacts that would break, with their descendants.
    """
    from stages.artifacts.references import advised

    # All are opened before one is removed: a wrong reference leaves the store as it is.
    for reference in going:
        store.open(reference)
    staying, gone = store.artifacts(), set(going)
    broken: list[str] = []
    while more := [a.reference for a in staying if a.reference not in gone and a.needed & gone]:
        broken += more
        gone |= set(more)
    if broken:
        all_of_it = advised(store.root, "artifacts", "rm", *going, *broken)
        raise UsageError(
            f"Made from {joined(going)}: {joined(broken)}. Remove all, {all_of_it}, or give --force."
        )


def _names(store: "Store") -> dict[str, list[str]]:
    """The names of every artifact that has some, by its reference."""
    found: dict[str, list[str]] = {}
    for kind in KINDS:
        for name, id in store.names(kind).items():
            found.setdefault(f"{kind}/{id}", []).append(name)
    return found


def _row(
    artifact: "Artifact", names: Mapping[str, list[str]], inputs: Mapping[str, set[str]]
) -> tuple[str, ...]:
    made = artifact.manifest.created[:16].replace("T", " ")
    called = ", ".join(names.get(artifact.reference, ()))
    above = {further for one in inputs[artifact.reference] for further in inputs.get(one, ())}
    parents = sorted(inputs[artifact.reference] - above)
    return artifact.reference, called, size(artifact.bytes), made, " ".join(parents)


def _summaries(artifacts: Iterable["Artifact"], store: "Store") -> list[dict[str, Any]]:
    names = _names(store)
    return [
        {
            "reference": artifact.reference,
            "names": names.get(artifact.reference, []),
            "bytes": artifact.bytes,
            "created": artifact.manifest.created,
            "inputs": {role: record.reference for role, record in artifact.manifest.inputs.items()},
        }
        for artifact in artifacts
    ]
