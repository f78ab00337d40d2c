"""What must hold of a store after a power loss."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stages.artifacts.draft import PROGRESS
from stages.artifacts.kinds import KINDS
from stages.artifacts.output import ProgressLog
from stages.artifacts.references import is_id
from stages.artifacts.store import Store
from stages.errors import ArtifactError

State = dict[str, str]
"""What a store says of itself: digests of artifacts, and ids of names, by reference."""


@dataclass(frozen=True)
class Promise:
    """What a caller was told: that a reference is there, is gone, or that a part of a draft is
    kept.
    """

    reference: str
    there: bool = True
    unit: str = ""
    """Key of a committed unit of work."""
    file: str = ""
    """Name of a checkpoint in the draft."""


def state(root: Path) -> State:
    """What is in the store below a folder."""
    store = Store(root / "store")
    names = {f"{kind}/{name}": id for kind in KINDS for name, id in store.names(kind).items()}
    return names | {artifact.reference: artifact.digest for artifact in store.artifacts()}


def changes(before: State, after: State) -> Iterator[Promise]:
    """What somebody who sees both knows of the store."""
    yield from (Promise(reference) for reference in after.keys() - before.keys())
    yield from (Promise(reference, there=False) for reference in before.keys() - after.keys())


def problems(root: Path, promises: Sequence[Promise], right: State) -> list[str]:
    """What is wrong with a store as it is found; empty if all is right.

    Args:
        root: the folder that it lies in.
        promises: what callers were told before, in order.
        right: what may be there.
    """
    store = Store(root / "store")
    found = [*_damaged(store, right), *_dangling(store)]
    last = {
        promise.reference: promise for promise in promises if not promise.unit and not promise.file
    }
    for promise in last.values():
        if promise.there != _is_there(store, promise.reference):
            found.append(
                f"{promise.reference} was {'finished, and is gone' if promise.there else 'removed, and is back'}"
            )
    found += [
        f"{p.reference} has lost {p.unit}{p.file}" for p in promises if _is_lost(store, p, last)
    ]
    return found


def _damaged(store: Store, right: State) -> Iterable[str]:
    for reference in store.references():
        try:
            artifact = store.open(reference)
            store.check_files(artifact, every_byte=True)
            if artifact.digest != right.get(reference):
                yield f"{reference} is another than that of an undisturbed run"
        except ArtifactError as error:
            yield f"{reference} stands as finished, but: {error}"


def _dangling(store: Store) -> Iterable[str]:
    for kind in KINDS:
        for name, id in store.names(kind).items():
            if not is_id(id):
                yield f"the name {kind}/{name} holds {id!r}"
            elif not store.has(kind, id):
                yield f"the name {kind}/{name} leads to nothing"


def _is_there(store: Store, reference: str) -> bool:
    try:
        store.get(reference)
        return True
    except ArtifactError:
        return False


def _is_lost(store: Store, promise: Promise, last: dict[str, Promise]) -> bool:
    """Whether a part of a draft that was kept is gone, with neither the artifact there nor the
    draft removed.
    """
    kind, id = promise.reference.split("/")
    if store.has(kind, id) or not last.get(promise.reference, promise).there:
        return False
    draft = store.draft_folder(kind, id)
    if (draft / "manifest.json").exists():
        return False
    if promise.file:
        return not list(draft.rglob(promise.file))
    log = ProgressLog(draft / PROGRESS)
    if promise.unit:
        log.load(draft)
    return bool(promise.unit) and promise.unit not in log.units
