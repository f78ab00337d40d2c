"""Work of `memlm artifacts`."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from memlm_cli.console import answer, answers_on_terminal, say
from memlm_cli.exit_codes import resumable
from memlm_cli.lineage_tree import lineage_tree, relatives
from memlm_cli.options import Asked
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

MEGABYTE = 10**6
RESUMES = "the same command resumes it, and --interrupted removes it"


def list_(kind: str | None, *, asked: Asked) -> None:
    """Carry out `memlm artifacts list`."""
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


def _unreadable(store: Store, reference: str) -> str:
    """Word for an artifact whose manifest cannot be read: damage, or another version's work."""
    try:
        store.open(reference)
    except UncheckedArtifact:
        return "of another version"
    except ArtifactError:
        return "damaged"
    return "made just now"


def show(reference: str, *, asked: Asked) -> None:
    """Carry out `memlm artifacts show`."""
    opened = asked.open_store()
    artifact = opened.get(reference)
    if answers_on_terminal() and not asked.json:
        answer_table(("", ""), artifact_rows(artifact, _names(opened).get(artifact.reference, [])))
        say(
            f"all settings, figures and digests: {artifact.advise('artifacts', 'show', reference, '--json')}"
        )
        return
    manifest = json.loads(artifact.manifest.dumps())
    manifest["files"] = manifest.pop("files")  # the long table of digests comes last
    answer(json.dumps(manifest, indent=None if asked.json else 2))


def verify(references: list[str] | None, *, asked: Asked) -> None:
    """Carry out `memlm artifacts verify`."""
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


def graph(reference: str | None, *, asked: Asked) -> None:
    """Carry out `memlm artifacts graph`."""
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


def rm(references: list[str], force: bool, *, asked: Asked) -> None:
    """Carry out `memlm artifacts rm`."""
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


def gc(dry_run: bool, unnamed: bool, interrupted: bool, *, asked: Asked) -> None:
    """Carry out `memlm artifacts gc`."""
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


def push(reference: str, bucket: str, *, asked: Asked) -> None:
    """Carry out `memlm artifacts push`."""
    with resumable("whole artifacts that were copied stay, and the same command copies the rest"):
        _answer_copied("push", copies.push, reference, bucket, asked)


def pull(reference: str, bucket: str, *, asked: Asked) -> None:
    """Carry out `memlm artifacts pull`."""
    with resumable():
        _answer_copied("pull", copies.pull, reference, bucket, asked)


def _answer_copied(
    way: str, copy: Callable[..., list[str]], reference: str, bucket: str, asked: Asked
) -> None:
    with ConsoleReporter(f"artifacts {way}") as reporter:
        copied = copy(reference, asked.open_store(), Bucket(bucket), reporter)
    if asked.json:
        answer(json.dumps(copied))
    elif copied:
        answer("\n".join(copied))
    else:
        say(f"nothing to copy: all of it is in {bucket if way == 'push' else asked.store} already")


def _verified(
    store: Store, references: Iterable[str], reporter: ConsoleReporter
) -> Iterator[tuple[str, Artifact | ArtifactError]]:
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


def _require_unused(store: Store, going: list[str]) -> None:
    """Raises: UsageError if an artifact that stays needs one that goes; ArtifactError if this
    cannot be checked.

    The message names all artifacts that would break, with their descendants.
    """
    # All are opened before one is removed: a wrong reference leaves the store as it is.
    for reference in going:
        store.open(reference)
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


def _names(store: Store) -> dict[str, list[str]]:
    """The names of every artifact that has some, by its reference."""
    found: dict[str, list[str]] = {}
    for kind in KINDS:
        for name, id in store.names(kind).items():
            found.setdefault(f"{kind}/{id}", []).append(name)
    return found


def _row(
    artifact: Artifact, names: Mapping[str, list[str]], inputs: Mapping[str, set[str]]
) -> tuple[str, ...]:
    made = artifact.manifest.created[:16].replace("T", " ")
    called = ", ".join(names.get(artifact.reference, ()))
    above = {further for one in inputs[artifact.reference] for further in inputs.get(one, ())}
    parents = sorted(inputs[artifact.reference] - above)
    return artifact.reference, called, size(artifact.bytes), made, " ".join(parents)


def _summaries(artifacts: Iterable[Artifact], store: Store) -> list[dict[str, Any]]:
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
