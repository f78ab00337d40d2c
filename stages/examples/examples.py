"""Interface of the examples of a split: batches of examples, and blocks of a range of tokens; a
corpus opens them.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.examples import EXAMPLES, STREAMS
from stages.examples.cutting import Cutting
from stages.examples.windows import Window
from stages.text.tokens import start_id

BATCH_TOKENS = 8192
"""Maximum number of inputs of a forward pass; a single example may have more."""


@dataclass(kw_only=True)
class Batch:
    """B rows of L inputs that are read together, and the token after each input, int64 [B, L] both.

    Rows of unequal length are padded at the end, with any token. So a causal network needs no mask
    of its inputs. `places`, int64 [B, L]: index in the split of the token after each input.
    """

    inputs: Tensor
    targets: Tensor
    places: np.ndarray
    document_offset: Tensor | None = None
    """Number of positions of the same document before each input, int64 [B, L], for models that
    read documents.
    """
    source: Tensor | None = None
    """Tokens of each row's source sequence, int64 [B, S]; None: rows have none."""
    source_mask: Tensor | None = None
    """Tokens of the source that count, bool [B, S]; None: all."""
    mask: Tensor | None = None
    """Tokens that count, bool [B, L], where rows are padded; None: all. A method's loss selects
    them with `rows`.
    """

    @classmethod
    def of(cls, batch: "Batch", **more: Any) -> Self:
        """A batch of this class, with the fields that a method adds."""
        return cls(**{field.name: getattr(batch, field.name) for field in fields(Batch)}, **more)

    def to(self, device: torch.device) -> Self:
        """A copy of this batch, which is on the CPU, on a device."""
        tensors = {name: part for name, part in vars(self).items() if isinstance(part, Tensor)}
        if device.type == "cuda":  # the host does not wait for copies
            tensors = {name: part.pin_memory() for name, part in tensors.items()}
        there: Any = {name: part.to(device, non_blocking=True) for name, part in tensors.items()}
        return replace(self, **there)

    @property
    def scored(self) -> Tensor | None:
        """Positions that a head reads, bool [B, L]; None: all."""
        return self.mask

    def rows(self, values: Tensor) -> Tensor:
        """The values [B, L, …] of the tokens that count, [n, …]."""
        return values.flatten(0, 1) if self.mask is None else values[self.mask]


@dataclass(frozen=True)
class Block:
    """Tokens [start, stop) of a split, and the windows that are read to predict them.

    `batch` has a row for each window, with padding at the end. Its `targets` are only the block's
    tokens, int64 [n].
    """

    start: int
    stop: int
    windows: list[Window]
    batch: Batch
    continues: bool
    """Whether the block begins with the final state of the block before."""


class Examples(ABC):
    """The tokens of a split, cut into consecutive examples, each with its inputs.

    The metric `examples` of a tokens artifact names the subclass that opens it.
    """

    by_tokens: ClassVar[bool] = False
    """Whether examples differ much in length. If so, a batch is limited by its tokens, padding
    included, not by examples."""

    ids: Any
    """Tokens of the split, an array of integers [T]."""

    @classmethod
    @abstractmethod
    def open(cls, split: Mapping[str, Any], eos: int, cutting: Cutting) -> Self:
        """Examples of a split.

        Args:
            split: the arrays that its form reads (`SplitForm.read`), by name.
            eos: the first input of the split.
            cutting: how ranges are cut for the model.
        """

    @property
    @abstractmethod
    def documents(self) -> np.ndarray:
        """The first token of each document, and the end of the split, int [D + 1]."""

    @property
    @abstractmethod
    def lengths(self) -> np.ndarray:
        """Tokens of each example, int64 [count]."""

    @property
    def sizes(self) -> np.ndarray:
        """Tokens of the longest sequence of each example, its source included, int64 [count]."""
        return self.lengths

    @abstractmethod
    def starts(self, which: np.ndarray) -> np.ndarray:
        """Index of the first token of each chosen example, int64, in the shape of `which`."""

    @abstractmethod
    def batch(self, which: np.ndarray) -> Batch:
        """A batch of the chosen examples [B], on the CPU."""

    @abstractmethod
    def blocks(self, start: int, stop: int, batch_tokens: int = BATCH_TOKENS) -> Iterator[Block]:
        """Tokens [start, stop), block by block, without gap or overlap.

        A block depends only on the arguments, so the same call gives the same bytes.
        """

    def windows(self, start: int, stop: int) -> list[Window]:
        """The windows that score tokens [start, stop), in order; subclasses that need no tokens
        override this.
        """
        return [window for block in self.blocks(start, stop) for window in block.windows]

    @property
    def count(self) -> int:
        """Number of examples; tokens at the end of a split may belong to none."""
        return len(self.lengths)

    def tasks(self) -> Sequence["Examples"]:
        """The examples of each task, in the order of the names that the tokens' metrics give as
        `tasks`; by default none belong to tasks.
        """
        return ()

    def documents_in(self, which: np.ndarray) -> np.ndarray:
        """Numbers of the documents that have tokens in the chosen examples [B], sorted, each once."""
        starts = self.starts(which)
        first, last = (
            np.searchsorted(
                self.documents, (starts, starts + self.lengths[which] - 1), side="right"
            )
            - 1
        )
        counts = last - first + 1
        # All ranges first … last in one array: a loop over examples would take longer than the
        # batch itself.
        before = np.repeat(first - np.cumsum(counts) + counts, counts)
        return np.unique(before + np.arange(len(before)))


class Task(NamedTuple):
    """A task of a stream: its name and its examples."""

    name: str
    examples: Examples


@dataclass(frozen=True)
class Corpus:
    """Examples of a tokens artifact: its arrays `<split>/<name>`, the first input of a split, and
    their kind.
    """

    arrays: Any
    eos: int
    kind: str = "streams"
    names: tuple[str, ...] = ()
    """Names of the tasks of a stream, by number."""

    @classmethod
    def of(cls, tokens: Artifact, arrays: Any = None) -> Self:
        """The corpus of a tokens artifact; `arrays`: its arrays, if they are open already."""
        arrays_of_tokens = tokens.zarr("tokens.zarr") if arrays is None else arrays
        kind = tokens.metrics.get("examples", STREAMS)
        names = tuple(tokens.metrics.get("tasks") or ())
        return cls(arrays_of_tokens, start_id(tokens.metrics), kind, names)

    @property
    def read(self) -> tuple[str, ...]:
        """Names of the arrays that examples read."""
        names: tuple[str, ...] = EXAMPLES.settings(self.kind).read
        return names

    def examples(self, split: str, cutting: Cutting) -> Examples:
        """The examples of a split, with ranges cut as `cutting` says."""
        examples: Examples = EXAMPLES.load(self.kind).open(
            {name: self.arrays[f"{split}/{name}"] for name in self.read}, self.eos, cutting
        )
        return examples

    def tasks(
        self, split: str, cutting: Cutting, order: Sequence[str] | None = None
    ) -> Sequence[Task]:
        """The tasks of a split in the given order; None: the whole split as one task."""
        examples = self.examples(split, cutting)
        if order is None:
            return [Task(split, examples)]
        of_task = dict(zip(self.names, examples.tasks(), strict=True))
        return [Task(name, of_task[name]) for name in order]
