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

    @classmethod
    def of(cls, tokens: Artifact, arrays: Any = None) -> Self:
        """The corpus of a tokens artifact; `arrays`: its own, where some are at hand."""
        own = tokens.zarr("tokens.zarr") if arrays is None else arrays
        return cls(own, start_id(tokens.metrics), tokens.metrics.get("examples", STREAMS))

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

    def tasks(self, split: str, cutting: Cutting) -> Sequence[Task]:
        """The tasks of a split, one where it is no stream of them."""
        examples = self.examples(split, cutting)
        return examples.tasks() if isinstance(examples, HasTasks) else [Task(split, examples)]
