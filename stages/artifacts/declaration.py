"""Declarations of stages: where the code is, the command, and the kind of artifact that is made.

Nothing here is imported from the stage itself, so `memlm --help` lists every command at once.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from stages.registry import Registry, import_outside, load

D = TypeVar("D")


class Reference(NamedTuple):
    """An artifact or a file that a command reads in addition to its source, given by an option."""

    help: str
    kinds: tuple[str, ...] = ()
    """Legal kinds of artifacts; empty: files."""
    metavar: str = ""
    """Placeholder in help pages; empty: the kinds."""
    several: bool = False
    """Whether it may be given more than once."""


class Command(NamedTuple):
    """A command, as `memlm COMMAND` and as `command = "COMMAND"` in a recipe."""

    summary: str
    source_help: str
    source: tuple[str, ...] = ()
    """Legal kinds of artifacts for its argument."""
    # A plain dictionary, since rows are pickled for worker processes.
    references: Mapping[str, Reference] = {}
    """Other artifacts and files, by the stage's names for them."""
    first: str = ""
    """The reference given as an argument before the source; empty: there is none."""
    reads_files: bool = False
    """Whether it reads the user's files instead of artifacts."""
    seeded: bool = False
    """Whether `memlm run --seeds` repeats it with other seeds."""
    forgets: bool = False
    """Whether it forgets documents, so that it takes `--receipt`."""


class Kind(NamedTuple):
    """One kind of artifact."""

    name: str
    format_version: int
    """Format version; it rises when the same settings give other bytes or names, and when a default
    changes.
    """
    facts: tuple[tuple[str, str], ...] = ()
    """Its most informative metrics, for pages: names (`splits.train.tokens`), and labels."""
    result: str = ""
    """The `memlm_cli.results.view:View` that shows it on a terminal; empty: a table of metrics."""
    notebook: str = ""
    """The `memlm.Artifact` that a notebook opens; empty: that class itself."""
    holds: str = ""
    """The rule of `stages.forgetting.rules` for documents that one holds; empty: it holds those of
    its inputs.
    """
    command: str = ""
    """The usual command that makes one, filled in by `KINDS`; other stages may make the kind."""


class StageEntry(NamedTuple):
    """A row of `STAGES`: all that is declared of a stage. Code is named as `"module:object"`."""

    contract: str
    """The `Stage`: inputs, schema and resolution, free of torch and NumPy."""
    kind: Kind | str
    """The kind of artifact that it makes; a text names a kind that another row declares."""
    settings: str = ""
    """Its settings, of which help imports nothing else; empty: `Config` of the contract."""
    work: str = ""
    """The `SerialWork` or `ShardedWork`, which is imported only if the artifact is to be made;
    empty: the contract does the work, too.
    """
    needs: str = ""
    """Function from resolved settings and inputs to `stages.artifacts.needs:Needs`; empty: not known."""
    command: Command | None = None
    """Its command; None: it is run from Python alone."""

    @property
    def code(self) -> tuple[str, ...]:
        """All targets that affect what it makes."""
        return tuple(filter(None, (self.settings, self.contract, self.work)))


class StageTable(Registry):
    """Stages by the names of their commands. A manifest names the stage that made the artifact.

    A small stage that only Python runs may be registered as `"module:class"` alone.
    """

    def settings(self, name: str) -> Any:
        """The class of the settings of `name`. Raises: see `load`."""
        row = self.row(name)
        return load(row.settings) if row.settings else load(row.contract).Config

    def load(self, name: str) -> Any:
        """The contract registered as `name`. Raises: UnknownPart for an unknown name."""
        return load(self.row(name).contract)

    def work(self, name: str) -> Any:
        """The class of the work registered as `name`. Raises: see `load`."""
        row = self.row(name)
        return load(row.work or row.contract)

    def needs(self, name: str) -> Any:
        """The function of the needs of `name`; None if they are not known."""
        row = self.row(name)
        return load(row.needs) if row.needs else None

    def row(self, name: str) -> StageEntry:
        """The row of `name`. Raises: UnknownPart for an unknown name."""
        return _as_row(self._part(name))

    def rows(self) -> list[tuple[str, StageEntry]]:
        """All rows that are imported already, in the order of the pipeline."""
        return [(name, _as_row(target)) for name, target in self.targets.items()]

    def modules_of(self, part: Any) -> set[str]:
        return super().modules_of(_as_row(part).code)


def _as_row(target: StageEntry | str) -> StageEntry:
    """A target as a row; a text alone names a contract that only Python runs."""
    return StageEntry(target, kind="") if isinstance(target, str) else target


class Declared(Mapping[str, D], Generic[D]):
    """Declarations of one sort in the rows of a table, by name.

    Names of stages from outside the package come last. Their modules are imported for a name that
    is not known, and before all names are listed.
    """

    def __init__(self, read: Callable[[], dict[str, D]]) -> None:
        """`read`: all declarations by name, as far as they are imported."""
        self._read = read

    def __getitem__(self, name: str) -> D:
        declared = self._read()
        if name not in declared:
            import_outside()
            declared = self._read()
        return declared[name]

    def __iter__(self) -> Iterator[str]:
        import_outside()
        return iter(self._read())

    def __len__(self) -> int:
        return len(list(iter(self)))

    def imported(self) -> list[str]:
        """Names whose declarations are imported already."""
        return list(self._read())


def declared_kinds(stages: StageTable) -> Declared[Kind]:
    """The kinds of artifacts, by name."""

    def read() -> dict[str, Kind]:
        kinds: dict[str, Kind] = {}
        for command, entry in stages.rows():
            if isinstance(entry.kind, Kind):
                kinds.setdefault(entry.kind.name, entry.kind._replace(command=command))
        return kinds

    return Declared(read)


def declared_commands(stages: StageTable) -> Declared[Command]:
    """The commands that make artifacts, by name."""

    def read() -> dict[str, Command]:
        commands = [(name, entry.command) for name, entry in stages.rows()]
        return {name: command for name, command in commands if command is not None}

    return Declared(read)
