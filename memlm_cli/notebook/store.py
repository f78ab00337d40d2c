"""The store, and every stage by its command."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlm_cli.notebook.artifacts import Artifact, Model, Neighbors, Report, StoredDatastore, StoredIndex, Tokens, plain
from memlm_cli.notebook.artifacts import reference as reference_of
from memlm_cli.notebook.reader import Reader
from memlm_cli.progress import ConsoleReporter

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact as Stored

KINDS: dict[str, type[Artifact]] = {
    "tokens": Tokens,
    "model": Model,
    "datastore": StoredDatastore,
    "index": StoredIndex,
    "neighbors": Neighbors,
    "report": Report,
}


def open(path: str | Path | None = None) -> "Store":
    """A store; None: as for commands `$MEMLM_STORE`, `store` of memlm.toml, `memlm-store`; it may be missing."""
    from memlm_cli.run_command import default_store

    return Store(path or default_store())


def run(command: str, *sources: "str | Path | Artifact", store: "Store | None" = None, **settings: Any) -> "Artifact":
    """Make, or find, the artifact of `memlm COMMAND SOURCES…`: the same id, lock, and resume.

    Args:
        command: of a stage (`build-datastore`).
        sources: its argument: an artifact, its reference, or files.
        store: where artifacts are; None: that of the first source, else as `open()`.
        settings: options of the command, with `_` for `-` (`mem_length=64`, `train=["a.txt"]`, `name="small"`); any
            other name is a setting (`index="flat"`, `optimizer={"lr": 1e-3}`).
    Raises: the errors of the exit codes.
    """
    found = store or next((source.store for source in sources if isinstance(source, Artifact)), None) or open()
    return found.run(command, *sources, **settings)


class Store:
    """A folder of artifacts."""

    def __init__(self, path: str | Path) -> None:
        from stages.artifacts.store import Store as Folder

        self._folder: Folder = Folder(Path(path))

    def __repr__(self) -> str:
        return f"memlm.open({str(self.path)!r})"

    @property
    def path(self) -> Path:
        return self._folder.root

    def __getitem__(self, reference: str) -> "Artifact":
        """The artifact behind `kind/id`, `kind/name` or a path, its files checked."""
        with ConsoleReporter("open", soon=True):
            return _of_kind(self, self._folder.get(reference_of(reference)))

    def run(self, command: str, *sources: "str | Path | Artifact", **settings: Any) -> "Artifact":
        """As `memlm.run`, in this store."""
        from memlm_cli.run_command import run_command

        words = [source.reference if isinstance(source, Artifact) else str(source) for source in sources]
        given = {name: plain(value) for name, value in settings.items()}
        with ConsoleReporter(command, soon=True):
            return _of_kind(self, run_command(command, words, {"store": self.path, **given}))

    def read(
        self,
        source: "str | Artifact",
        *,
        report: "str | Artifact | None" = None,
        memory: str | Sequence[str] | None = None,
        **settings: Any,
    ) -> "Reader":
        """A model with its memories, for texts.

        Args:
            source: a model, an index or neighbors.
            report: an evaluation whose memories and windows are taken.
            memory: readings in its place, as after `--memory`; "none": the model alone. Neither: defaults.
            settings: `context`, `stride`, `mem_length`, `long_length`, `device`, `precision`, as of `memlm inspect`;
                `index` or `neighbors`, memory of another encoder.
        """
        from pipelines.settings import validated
        from stages.inspection.settings import Request

        given = {name: plain(value) for name, value in settings.items()}
        given |= {"source": reference_of(source, "source"), "memory": (memory,) if isinstance(memory, str) else memory}
        given["report"] = None if report is None else reference_of(report, "report")
        request = validated(Request, given)
        with ConsoleReporter("read", soon=True):
            return Reader(self._folder, request)


def _of_kind(store: Store, stored: "Stored") -> Artifact:
    return KINDS.get(stored.kind, Artifact)(store, stored)
