"""The splits of a corpus, opened as examples."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from stages.artifacts.artifact import Artifact
from stages.examples import EXAMPLES, STREAMS
from stages.examples.cutting import Cutting
from stages.examples.examples import Examples, HasTasks, Task
from stages.text.tokens import start_id


@dataclass(frozen=True)
class Corpus:
    """Arrays `<split>/<name>` of tokens, the first input of a split, and what kind of examples the tokens are."""

    arrays: Any
    eos: int
    kind: str = "streams"
    names: tuple[str, ...] = ()
    """Names of the tasks of a stream, by number."""

    @classmethod
    def of(cls, tokens: Artifact, arrays: Any = None) -> Self:
        """The corpus of a tokens artifact; `arrays`: its own, where some are at hand."""
        own = tokens.zarr("tokens.zarr") if arrays is None else arrays
        kind, names = tokens.metrics.get("examples", STREAMS), tuple(tokens.metrics.get("tasks") or ())
        return cls(own, start_id(tokens.metrics), kind, names)

    @property
    def read(self) -> tuple[str, ...]:
        """Names of the arrays that examples read."""
        names: tuple[str, ...] = EXAMPLES.settings(self.kind).read
        return names

    def examples(self, split: str, cutting: Cutting) -> Examples:
        """The examples of a split, for a model that wants ranges to be cut so."""
        found: Examples = EXAMPLES.load(self.kind).open(
            {name: self.arrays[f"{split}/{name}"] for name in self.read}, self.eos, cutting
        )
        return found

    def tasks(self, split: str, cutting: Cutting, order: Sequence[str] | None = None) -> Sequence[Task]:
        """The tasks of a split in an order; None: all of it as one."""
        examples = self.examples(split, cutting)
        if order is None:
            return [Task(split, examples)]
        assert isinstance(examples, HasTasks)
        of_task = dict(zip(self.names, examples.tasks(), strict=True))
        return [Task(name, of_task[name]) for name in order]
