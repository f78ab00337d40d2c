"""The store, and all stages by their commands."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlm_cli.notebook.artifacts import (
    Artifact,
    plain,
)
from memlm_cli.notebook.artifacts import reference as reference_of
from memlm_cli.progress import ConsoleReporter
from memlm_cli.run_command import default_store, run_command
from stages.artifacts.artifact import Artifact as Stored
from stages.artifacts.kinds import KINDS
from stages.artifacts.store import Store as Folder
from stages.errors import UsageError, did_you_mean
from stages.inspection.settings import Request
from stages.registry import load
from stages.validation import validated

if TYPE_CHECKING:
    from memlm_cli.notebook.reader import Reader


def open(path: str | Path | None = None) -> "Store":
    """A store; None: as for commands `$MEMLM_STORE`, else `memlm-store`; it may be missing."""
    return Store(path or default_store())


def run(
    command: str, *sources: "str | Path | Artifact", store: "Store | None" = None, **settings: Any
) -> "Artifact":
    """Make, or find, the artifact of `memlm COMMAND SOURCES…`: the same id, lock, and resume.

    Args:
        command: of a stage (`build-datastore`).
        sources: its argument: an artifact, its reference, or files.
        store: where artifacts are; None: that of the first source, else as `open()`.
        settings: options of the command, with `_` for `-` (`batch_tokens=512`, `train=["a.txt"]`,
            `name="small"`); any other name is a setting (`index="flat"`, `optimizer={"lr": 1e-3}`).
    Raises: the errors of the exit codes.
    """
    store_of_sources = (
        store
        or next((source.store for source in sources if isinstance(source, Artifact)), None)
        or open()
    )
    return store_of_sources.run(command, *sources, **settings)


class Store:
    """A folder of artifacts."""

    def __init__(self, path: str | Path) -> None:
        self._folder: Folder = Folder(Path(path))

    def __repr__(self) -> str:
        return f"memlm.open({str(self.path)!r})"

    @property
    def path(self) -> Path:
        return self._folder.root

    def __getitem__(self, reference: str) -> "Artifact":
        """The artifact of `kind/id`, `kind/name` or a path, with its files checked."""
        with ConsoleReporter("open", soon=True):
            return _of_kind(self, self._folder.get(reference_of(reference)))

    def list(self, *kinds: str) -> Sequence[Artifact]:
        """Its artifacts in the order of the pipeline, oldest first; `kinds`: only these.

        Raises: UsageError for a kind that does not exist.
        """
        for kind in kinds:
            if kind not in KINDS:
                raise UsageError(f"There is no kind {kind!r}; {did_you_mean(kind, KINDS)}")
        return [_of_kind(self, stored) for stored in self._folder.artifacts(*kinds)]

    def run(self, command: str, *sources: "str | Path | Artifact", **settings: Any) -> "Artifact":
        """Same as `memlm.run`, in this store."""
        words = [reference_of(source) for source in sources]
        values = {name: plain(value) for name, value in settings.items()}
        with ConsoleReporter(command, soon=True):
            return _of_kind(self, run_command(command, words, {"store": self.path, **values}))

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
            memory: readings in its place, as after `--memory`; "none": the model alone. Neither:
            defaults.
            settings: other options of `memlm inspect`, with `_` for `-` (`index`, `context`,
            `device`).
        """
        values = {name: plain(value) for name, value in settings.items()}
        values |= {
            "source": reference_of(source, "source"),
            "memory": (memory,) if isinstance(memory, str) else memory,
        }
        values["report"] = None if report is None else reference_of(report, "report")
        request = validated(Request, values)
        with ConsoleReporter("read", soon=True):
            reader: Reader = load("memlm_cli.notebook.reader:Reader")(self._folder, request)
            return reader


def _of_kind(store: Store, stored: Stored) -> Artifact:
    kind = KINDS[stored.kind]
    opened = load(kind.notebook) if kind.notebook else Artifact
    return opened(store, stored)
