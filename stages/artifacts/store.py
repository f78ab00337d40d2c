"""The store: a folder of artifacts, by kind and id, and of their names."""

from collections.abc import Callable
from contextlib import suppress
from os.path import exists, isfile  # the methods of Path raise if the path is too long
from pathlib import Path

from stages.artifacts.arrays import missing_shards
from stages.artifacts.artifact import Artifact
from stages.artifacts.checksums import find_damage
from stages.artifacts.durable import delete, fsync, place_of, remove_folder, write_inside
from stages.artifacts.kinds import KINDS
from stages.artifacts.manifest import Manifest, wrong_manifest
from stages.artifacts.references import (
    MANIFEST,
    check_name,
    is_id,
    log_folder,
    name_file,
    named_id,
    names,
    references,
    require_inside,
    split_reference,
)
from stages.errors import ArtifactError, UsageError, did_you_mean, nearest, shortened

TYPO = 0.9
"""Similarity of two ids that differ in one character, or in two swapped characters."""


class Store:
    """Artifacts below one folder; the folder need not exist yet."""

    def __init__(self, root: Path | str) -> None:
        """Open the store at a path, which need not exist. Raises: UsageError if the path, or a
        parent of it, is a file.
        """
        self.root = Path(root)
        place = place_of(self.root)
        if not place.is_dir():
            raise UsageError(f"The store {self.root} cannot be used: {place} is no folder.")

    # Where things lie

    def folder(self, kind: str, id: str) -> Path:
        return self.root / kind / id

    def draft_folder(self, kind: str, id: str) -> Path:
        return self.root / kind / f".{id}-partial"

    def lock_file(self, kind: str, id: str) -> Path:
        return self.root / kind / f".{id}.lock"

    def stamp_file(self, kind: str, id: str) -> Path:
        return self.root / ".stamps" / kind / f"{id}.json"

    # Reading

    def has(self, kind: str, id: str) -> bool:
        """Whether a finished artifact is in the store."""
        return (self.folder(kind, id) / MANIFEST).is_file()

    def get(self, reference: str, *kinds: str) -> Artifact:
        """The artifact of a reference, with its files checked.

        Args:
            reference: `kind/id`, `kind/name`, or a path to an artifact's folder.
            kinds: accepted kinds; empty: any kind.
        Raises: ArtifactError if there is none, or if it is damaged, of another format, or of
        another kind.
        """
        artifact = self.open(reference, *kinds)
        artifact.store.check_files(artifact)
        return artifact

    def open(self, reference: str, *kinds: str) -> Artifact:
        """The artifact of a reference; its manifest is read, but its files are not checked.

        Raises: ArtifactError if there is none, its manifest is damaged or of another format, or it
        is of another kind.
        """
        artifact = self._open(self.locate(reference))
        if kinds and artifact.kind not in kinds:
            legal = " or ".join(f"{kind} (memlm {KINDS[kind].command})" for kind in kinds)
            raise ArtifactError(f"{reference} is of kind {artifact.kind}; needed here: {legal}.")
        return artifact

    def check_files(
        self,
        artifact: Artifact,
        *,
        every_byte: bool = False,
        read: Callable[[int], None] = lambda count: None,
    ) -> None:
        """Compare an artifact's files with its manifest; files with a valid stamp are trusted.

        Args:
            artifact: the artifact to check.
            every_byte: hash every file, whatever its stamp, and compute the id again.
            read: receives the number of bytes of each block that is hashed.
        Raises: ArtifactError naming the first damaged file.
        """
        # Checked before anything is opened, since a name in a manifest may lead out of the
        # artifact.
        require_inside(artifact.path, artifact.manifest.files)
        stamps = None if every_byte else self.stamp_file(artifact.kind, artifact.id)
        wrong = find_damage(artifact.path, artifact.manifest.files, stamps, read)
        if wrong is None:
            missing = next(missing_shards(artifact.path, artifact.manifest.files), None)
            lacks = f"its manifest lacks {missing}, which its arrays need"
            wrong = wrong_manifest(artifact.manifest) if missing is None else lacks
        if wrong is None and every_byte:
            wrong = artifact.manifest.wrong_id
        if wrong is not None:
            raise artifact.damaged(wrong)

    def artifacts(self, *kinds: str) -> list[Artifact]:
        """All finished, readable artifacts, sorted by kind in the order of the pipeline, then
        oldest first.

        Args:
            kinds: wanted kinds; empty: all.
        """
        artifacts = []
        for reference in self.references():
            if not kinds or reference.partition("/")[0] in kinds:
                with suppress(ArtifactError):
                    artifacts.append(self._open(self.root / reference))
        order = list(KINDS)
        return sorted(artifacts, key=lambda a: (order.index(a.kind), a.manifest.created, a.id))

    def references(self) -> list[str]:
        """`kind/id` of every folder at the place of a finished artifact, readable or not."""
        return references(self.root)

    def _open(self, folder: Path) -> Artifact:
        manifest = Manifest.read(folder)
        inside = folder.parent.name == manifest.kind and folder.name == manifest.id
        is_here = not inside or folder.parent.parent == self.root
        store = self if is_here else Store(folder.parent.parent)
        return Artifact(store, folder, manifest)

    def locate(self, reference: str) -> Path:
        """The folder of a reference, with any content. Raises ArtifactError if there is none."""
        parts = split_reference(reference)
        if parts is None:
            return self._locate_path(reference)
        kind, rest = parts
        id = rest if is_id(rest) else self._named(kind, rest)
        if not self.folder(kind, id).is_dir():
            raise ArtifactError(self._absence(kind, id, reference))
        return self.folder(kind, id)

    def _locate_path(self, reference: str) -> Path:
        path = Path(reference)
        if isfile(path / MANIFEST):
            return path.resolve()
        if reference and isfile(path):
            raise ArtifactError(
                f"{shortened(reference)} is a file, no artifact: memlm tokenize reads texts."
            )
        if reference and exists(path):
            raise ArtifactError(f"{reference} is no artifact: it has no {MANIFEST}.")

        hint = ""
        kind, slash, _ = reference.partition("/")
        if slash and not reference.startswith((".", "/")):
            hint = f"; {did_you_mean(kind, KINDS)}"
        elif not slash:
            # a name without its kind
            named = [f"{kind}/{reference}" for kind in KINDS if reference in self.names(kind)]
            if named:
                hint = f"; did you mean {' or '.join(named)}?"
        raise ArtifactError(
            f"{shortened(reference)!r} is neither kind/id, nor kind/name, nor an artifact's folder{hint}"
        )

    def _named(self, kind: str, name: str) -> str:
        file = name_file(self.root, kind, name)
        if not isfile(file):
            names = self.names(kind)
            near = nearest(name, names)
            if near is not None:
                hint = f"did you mean '{kind}/{near}'?"
            elif names:
                hint = f"known: {', '.join(sorted(names))}"
            else:
                hint = f"memlm artifacts list {kind} shows what is"
            raise ArtifactError(f"{kind}/{name} is not in {self.root}; {hint}")
        id = named_id(file)
        if not is_id(id):
            raise ArtifactError(
                f"{file} is damaged: a name holds an id, not {id[:40]!r}; delete that "
                f"file, and give the name again with memlm {KINDS[kind].command} --name {name}."
            )
        return id

    def _absence(self, kind: str, id: str, reference: str) -> str:
        command = KINDS[kind].command
        if self.draft_folder(kind, id).is_dir():
            return f"{reference} is not finished; run the memlm {command} that makes it again: it goes on from there."
        ids = []
        for other in self.references():
            other_kind, _, other_id = other.partition("/")
            if other_kind == kind:
                ids.append(other_id)
        near = nearest(id, ids, TYPO)
        if near is not None:
            return f"{reference} is not in {self.root}; did you mean '{kind}/{near}'?"
        return f"{reference} is not in {self.root}; make it with memlm {command}, or name the store with --store."

    # Names

    def names(self, kind: str) -> dict[str, str]:
        """Names of artifacts of a kind, and their ids."""
        return names(self.root, kind)

    def name(self, artifact: Artifact, name: str) -> None:
        """Give an artifact the name `kind/name`; a name already in use moves to it."""
        file = name_file(self.root, artifact.kind, check_name(name))
        write_inside(self.root, file, artifact.id + "\n")

    # Removing

    def own_folder(self, reference: str) -> Path:
        """The folder of this store that may be removed for a reference, with any content.

        Raises: UsageError for a path, since paths are for reading; ArtifactError if there is no
            such folder, or if a link leads to it.
        """
        if split_reference(reference) is None and (Path(reference) / MANIFEST).is_file():
            raise UsageError(
                f"{reference} is a path, and paths are for reading: name what is to be removed as kind/id or "
                "kind/name, and its store with --store."
            )
        folder = self.locate(reference)
        if folder.is_symlink() or not self._is_own(folder):
            raise ArtifactError(
                f"{folder} is a link, or lies behind one, to {folder.resolve()}: only folders of the store itself "
                "are removed. Remove the link by hand if it is not wanted."
            )
        return folder

    def remove(self, *references: str) -> None:
        """Delete artifacts with their names and stamps; each folder disappears in one step.

        Raises: the errors of `own_folder`, before anything is deleted.
        """
        folders = dict.fromkeys(self.own_folder(reference) for reference in references)
        # Names go first, even after a power loss: a name without an artifact is worse than an
        # artifact without a name.
        going = {(folder.parent.name, folder.name) for folder in folders}
        for kind in {kind for kind, _ in going}:
            named = [name for name, id in self.names(kind).items() if (kind, id) in going]
            files = [
                file for name in named if self._is_own(file := name_file(self.root, kind, name))
            ]
            for file in files:
                file.unlink(missing_ok=True)
            if files:
                fsync(files[0].parent)
        for folder in folders:
            remove_folder(folder)
            logs = log_folder(self.root, folder.parent.name, folder.name)
            if self._is_own(logs) and logs.is_dir() and not logs.is_symlink():
                delete(logs)
            stamps = self.stamp_file(folder.parent.name, folder.name)
            if self._is_own(stamps):
                stamps.unlink(missing_ok=True)

    def _is_own(self, path: Path) -> bool:
        """Whether no link is on the way from the root to a path below it."""
        return path.parent.resolve() == self.root.resolve() / path.parent.relative_to(self.root)
