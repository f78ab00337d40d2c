"""Work of `memlm artifacts`."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from memlm_cli.console import answer, answers_on_terminal, say
from memlm_cli.exit_codes import resumable
from memlm_cli.lineage_tree import lineage_tree, relatives
from memlm_cli.options import StoreOptions
from memlm_cli.progress import ConsoleReporter
from memlm_cli.results.show import artifact_rows
from memlm_cli.tables import answer_table
from stages.artifacts import copies
from stages.artifacts.artifact import Artifact
from stages.artifacts.bucket import Bucket
from stages.artifacts.garbage import find_garbage, folder_bytes, remove_garbage, unfinished
from stages.artifacts.kinds import KINDS
from stages.artifacts.manifest import UncheckedArtifact
from stages.artifacts.references import advised
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError, did_you_mean
from stages.numbers import joined, size
from stages.registry import OUTSIDE

MEGABYTE = 10**6
RESUMES = "the same command resumes it, and --interrupted removes it"


def list_(kind: str | None, *, store_options: StoreOptions) -> None:
    """Carry out `memlm artifacts list`."""
    if kind and kind not in KINDS:
        raise UsageError(f"There is no kind {kind!r}; {did_you_mean(kind, KINDS)}")
    opened = store_options.open_store()
    everything = opened.artifacts()  # of other kinds, too: they show the origin of each
    listed = [artifact for artifact in everything if kind in (None, artifact.kind)]
    if store_options.json:
        answer(json.dumps(_summaries(listed, opened)))
        return
    if listed:
        names = _names(opened)
        inputs = {artifact.reference: artifact.parents for artifact in everything}
        rows = [_row(artifact, names, inputs) for artifact in listed]
        answer_table(("artifact", "name", "size", "made", "from"), rows, whole=False)
    else:
        say(f"nothing in {opened.root} yet")

    readable = {artifact.reference for artifact in listed}
    for reference in opened.references():
        if reference not in readable and kind in (None, reference.partition("/")[0]):
            fault = _unreadable(opened, reference)
            say(f"{fault}: {reference}, which memlm artifacts verify {reference} tells more of")
    for draft in unfinished(opened):
        if kind in (None, draft.path.parent.name):
            path = draft.path.relative_to(opened.root)
            say(f"unfinished: {path}, {size(draft.bytes)}, {draft.state}")


def _unreadable(store: Store, reference: str) -> str:
    """Word for an artifact whose manifest cannot be read: damage, or another version's work."""
    try:
        store.open(reference)
    except UncheckedArtifact:
        return "of another version"
    except ArtifactError:
        return "damaged"
    return "made just now"


def show(reference: str, *, store_options: StoreOptions) -> None:
    """Carry out `memlm artifacts show`."""
    opened = store_options.open_store()
    artifact = opened.get(reference)
    if answers_on_terminal() and not store_options.json:
        answer_table(("", ""), artifact_rows(artifact, _names(opened).get(artifact.reference, [])))
        say(
            f"all settings, figures and digests: {artifact.advise('artifacts', 'show', reference, '--json')}"
        )
        return
    manifest = json.loads(artifact.manifest.dumps())
    manifest["files"] = manifest.pop("files")  # the long table of digests comes last
    answer(json.dumps(manifest, indent=None if store_options.json else 2))


def verify(references: list[str] | None, *, store_options: StoreOptions) -> None:
    """Carry out `memlm artifacts verify`."""
    opened = store_options.open_store()
    chosen = references or opened.references()
    if not chosen:
        say(f"nothing in {opened.root} yet")
    damaged: list[str] = []
    unchecked: list[str] = []
    with ConsoleReporter("artifacts verify") as reporter:
        for reference, error in _faults(opened, chosen, reporter):
            with reporter.aside():
                if error is not None:
                    say(str(error))
                    faulty = unchecked if isinstance(error, UncheckedArtifact) else damaged
                    faulty.append(reference)
                elif not store_options.json:
                    answer(f"{reference} is as it was made")

    if store_options.json:
        rows = []
        for reference in chosen:
            row = {
                "reference": reference,
                "damaged": reference in damaged,
                "unchecked": reference in unchecked,
            }
            rows.append(row)
        answer(json.dumps(rows))
    if damaged:
        raise ArtifactError(f"{len(damaged)} of {len(chosen)} are damaged: {', '.join(damaged)}")
    if unchecked:
        raise ArtifactError(
            f"{len(unchecked)} of {len(chosen)} cannot be checked here: {', '.join(unchecked)}"
        )


def graph(reference: str | None, *, store_options: StoreOptions) -> None:
    """Carry out `memlm artifacts graph`."""
    opened = store_options.open_store()
    artifacts = opened.artifacts()
    if reference:
        artifacts = relatives(opened.open(reference).reference, artifacts)
    if store_options.json:
        answer(json.dumps(_summaries(artifacts, opened)))
    else:
        answer(
            lineage_tree(
                artifacts,
                {reference: ", ".join(names) for reference, names in _names(opened).items()},
            )
        )


def rm(references: list[str], force: bool, *, store_options: StoreOptions) -> None:
    """Carry out `memlm artifacts rm`."""
    opened = store_options.open_store()
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
        if not store_options.json:
            answer(f"removed {reference} ({size(freed)})")
    if store_options.json:
        answer(json.dumps(removed))


def gc(dry_run: bool, unnamed: bool, interrupted: bool, *, store_options: StoreOptions) -> None:
    """Carry out `memlm artifacts gc`."""
    opened = store_options.open_store()
    garbage = find_garbage(opened, unnamed=unnamed, interrupted=interrupted)
    folders = [str(g.path.relative_to(opened.root)) for g in garbage]
    if store_options.json:
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
    if not store_options.json:
        answer(f"{size(sum(g.bytes for g in garbage))} {'would be' if dry_run else 'was'} freed")


def push(reference: str, bucket: str, *, store_options: StoreOptions) -> None:
    """Carry out `memlm artifacts push`."""
    with resumable("whole artifacts that were copied stay, and the same command copies the rest"):
        _answer_copied("push", copies.push, reference, bucket, store_options)


def pull(reference: str, bucket: str, *, store_options: StoreOptions) -> None:
    """Carry out `memlm artifacts pull`."""
    with resumable():
        _answer_copied("pull", copies.pull, reference, bucket, store_options)


def _answer_copied(
    way: str,
    copy: Callable[..., list[str]],
    reference: str,
    bucket: str,
    store_options: StoreOptions,
) -> None:
    with ConsoleReporter(f"artifacts {way}") as reporter:
        copied = copy(reference, store_options.open_store(), Bucket(bucket), reporter)
    if store_options.json:
        answer(json.dumps(copied))
    elif copied:
        answer("\n".join(copied))
    else:
        say(
            f"nothing to copy: all of it is in {bucket if way == 'push' else store_options.store} already"
        )


def _faults(
    store: Store, references: Iterable[str], reporter: ConsoleReporter
) -> Iterator[tuple[str, ArtifactError | None]]:
    """Each reference with the error that reading every byte finds; None if all are right."""
    artifacts: dict[str, Artifact] = {}
    errors: dict[str, ArtifactError] = {}
    for reference in references:
        try:
            artifacts[reference] = store.open(reference)
        except ArtifactError as error:
            errors[reference] = error
    total = sum(artifact.manifest.bytes for artifact in artifacts.values())
    done = 0

    def read(count: int) -> None:
        nonlocal done
        done += count
        reporter.progress(done // MEGABYTE, total // MEGABYTE, "MB read")

    for reference in references:
        if reference in errors:
            yield reference, errors[reference]
            continue
        try:
            store.check_files(artifacts[reference], every_byte=True, read=read)
            yield reference, None
        except ArtifactError as error:
            yield reference, error


def _require_unused(store: Store, going: list[str]) -> None:
    """Raises: UsageError if an artifact that stays needs one that goes; ArtifactError if this
    cannot be checked.

    The message names all artifacts that would break, with their descendants.
    """
    # All are opened before one is removed: a wrong reference leaves the store as it is.
    for reference in going:
        store.open(reference)
    _require_known_kinds(store, going)
    staying = store.artifacts()
    gone = set(going)
    broken: list[str] = []
    while more := [a.reference for a in staying if a.reference not in gone and a.needed & gone]:
        broken += more
        gone |= set(more)
    if broken:
        all_of_it = advised(store.root, "artifacts", "rm", *going, *broken)
        raise UsageError(
            f"Made from {joined(going)}: {joined(broken)}. Remove all, {all_of_it}, or give --force."
        )


def _require_known_kinds(store: Store, going: list[str]) -> None:
    """Raises: ArtifactError if an artifact of an unknown kind stays: what it was made from cannot be
    read.
    """
    for reference in store.references():
        kind = reference.partition("/")[0]
        if kind not in KINDS and reference not in going:
            raise ArtifactError(
                f"{reference} is of a kind that is not known here, and may have been made from "
                f"{joined(going)}. Set {OUTSIDE} to the module of its stage, or give --force."
            )


def _names(store: Store) -> dict[str, list[str]]:
    """The names of every artifact that has some, by its reference."""
    names_of: dict[str, list[str]] = {}
    for kind in KINDS:
        for name, id in store.names(kind).items():
            names_of.setdefault(f"{kind}/{id}", []).append(name)
    return names_of


def _row(
    artifact: Artifact, names: Mapping[str, list[str]], inputs: Mapping[str, set[str]]
) -> tuple[str, ...]:
    reference = artifact.reference
    created = artifact.manifest.created[:16].replace("T", " ")
    # inputs of an input are not named: they show in its own row
    parents = set(inputs[reference])
    for parent in inputs[reference]:
        parents -= inputs.get(parent, set())
    artifact_names = ", ".join(names.get(reference, ()))
    return reference, artifact_names, size(artifact.bytes), created, " ".join(sorted(parents))


def _summaries(artifacts: Iterable[Artifact], store: Store) -> list[dict[str, Any]]:
    names = _names(store)
    summaries = []
    for artifact in artifacts:
        inputs = artifact.manifest.inputs.items()
        summary = {
            "reference": artifact.reference,
            "names": names.get(artifact.reference, []),
            "bytes": artifact.bytes,
            "created": artifact.manifest.created,
            "inputs": {role: record.reference for role, record in inputs},
        }
        summaries.append(summary)
    return summaries
