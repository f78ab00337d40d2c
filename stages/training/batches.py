"""The examples of each forward batch of a run, and the size of batches."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from stages.errors import DataError, UsageError
from stages.examples.batching import aligned_order, by_length, shuffled_order, token_batches
from stages.examples.examples import Examples, Task
from stages.methods.config import ENOUGH_DOCUMENTS
from stages.methods.method import BatchLayout, Method
from stages.reporting import Reporter
from stages.training.config import TrainConfig

UPDATES_LOOKED_AT = 8
"""Number of first updates whose documents are counted before training."""
NEARLY_RANDOM = 0.75
"""Share of the number of documents in random segments above which a batch counts as random."""


def batch_size(
    config: TrainConfig, count: int, ranks: int, layout: BatchLayout, reporter: Reporter
) -> int:
    """Examples of a forward batch over all ranks: the requested number, reduced if the split or the
    ranks need it.

    Args:
        count: examples of the training split.
    Raises: DataError if ranks cannot share any.
    """
    requested = config.batch_segments
    together = layout.rows_together
    # Every rank gets the same number of whole groups of rows.
    unit = ranks * together
    size = min(requested, count) // unit * unit
    if size == 0:
        share = (
            f"shared by {ranks} processes"
            if together == 1
            else f"made of {ranks} times {together} of them"
        )
        raise DataError(f"A batch of {min(requested, count)} segments cannot be {share}.")
    if size < requested:
        reporter.warning(
            f"the training split has {count} segments of {config.segment_length} tokens; "
            f"a batch is {size} segments instead of {requested}"
        )
    return size


def batches_by_tokens(
    examples: Examples,
    max_tokens: int,
    seed: int,
    packing: np.ndarray | None = None,
    ranks: int = 1,
) -> list[np.ndarray]:
    """Cut examples of unequal length into batches of at most `max_tokens` tokens, padding
    included: int64 [B] each. Every example is in one batch; there is at least one example.

    Args:
        packing: the examples in the order in which they are cut, int64 [count]; None: by length, so
            that a batch needs little padding.
        ranks: processes that share each batch.
    Raises: DataError for a batch that ranks cannot share.
    """
    order = packing
    if order is None:
        order = by_length(examples.lengths, examples.sizes, seed)
    bounds = token_batches(examples.sizes[order], max_tokens)
    batches = [order[first:stop] for first, stop in bounds]

    fewest = min(map(len, batches))
    if fewest < ranks:
        raise DataError(
            f"A batch of {fewest} examples cannot be shared by {ranks} processes: raise --batch-tokens."
        )
    return batches


class BatchShare(NamedTuple):
    """The share of one rank in a forward batch."""

    examples: Examples
    """Examples of the task that is learnt."""
    indices: np.ndarray
    """Indices of the examples that the rank reads, int64 [B]."""
    begins_epoch: bool
    """Whether streams begin with it."""
    weight: float | None
    """Weight of the rank's mean loss, with which all tokens of the update count equally; None: all
    batches and ranks have equal weights.
    """


class TaskOrder:
    """The examples of each update of a run, one task after the other.

    A task has the same share of updates as of batches. So a whole number of epochs is whole for
    each task.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        method: Method,
        layout: BatchLayout,
        size: int,
        config: TrainConfig,
        ranks: int = 1,
    ) -> None:
        """`size`: examples of a forward batch, over all ranks; unused if batches are cut by tokens."""
        self.tasks = tasks
        self.layout = layout
        self._accumulate = config.accumulate
        self._orders = [
            ExampleOrder(
                task.examples, method, layout, size, config.seed, config.batch_tokens, ranks
            )
            for task in tasks
        ]
        batches = np.cumsum([0, *(order.batches_per_epoch for order in self._orders)])
        # In integers: a rounded quotient could give a task one more update on another machine.
        self._borders = [config.steps * int(count) // int(batches[-1]) for count in batches]
        if len(set(self._borders)) < len(self._borders):
            raise UsageError(
                f"{config.steps} updates are too few for {len(tasks)} tasks: give more --steps or --epochs."
            )

    def place(self, step: int) -> int:
        """Place in the stream of the task of the update number `step`, from 0."""
        return bisect_right(self._borders, step) - 1

    def begins(self, step: int) -> Task | None:
        """The task whose first update follows `step` others."""
        place = self.place(step)
        return self.tasks[place] if step == self._borders[place] else None

    def ends(self, step: int) -> Task | None:
        """The task whose last update follows `step` others."""
        place = self.place(step)
        return self.tasks[place] if step + 1 == self._borders[place + 1] else None

    def batch(self, step: int, part: int, rank: int, ranks: int) -> BatchShare:
        """The share of a rank in the forward batch number `part` of an update."""
        place, numbers = self._forward_batches(step)
        examples = self.tasks[place].examples
        order = self._orders[place]
        indices = order.share(numbers[part], rank, ranks)
        weight = None
        if examples.by_tokens:
            whole = sum(examples.lengths[order.of_batch(number)].sum() for number in numbers)
            # Gradients are means over ranks, so the weights of ranks sum to their number.
            weight = float(examples.lengths[indices].sum() * ranks / whole)
        return BatchShare(examples, indices, order.begins_epoch(numbers[part]), weight)

    @property
    def update_tokens(self) -> int:
        """Tokens that one update reads, over all ranks; a mean if examples differ in length."""
        lengths = self.pass_tokens
        if self.tasks[0].examples.by_tokens:
            return round(
                lengths / sum(order.batches_per_epoch for order in self._orders) * self._accumulate
            )
        return round(
            self._orders[0].size
            * self._accumulate
            * lengths
            / sum(t.examples.count for t in self.tasks)
        )

    @property
    def pass_tokens(self) -> int:
        """Tokens that one pass over all tasks reads, without the cut ends of long documents."""
        return sum(int(task.examples.lengths.sum()) for task in self.tasks)

    def documents_in(self, step: int) -> int:
        """Number of documents that an update reads in whole or in part, over all ranks."""
        place, numbers = self._forward_batches(step)
        return self._orders[place].documents_in(numbers)

    def few_documents(self) -> str | None:
        """Warning about the first task; see `ExampleOrder.few_documents`."""
        return self._orders[0].few_documents(self._accumulate)

    def _forward_batches(self, step: int) -> tuple[int, range]:
        """Place of the task of an update, and the numbers of its forward batches within the task."""
        place = self.place(step)
        first = (step - self._borders[place]) * self._accumulate
        return place, range(first, first + self._accumulate)


class ExampleOrder:
    """The examples of each forward batch; they depend only on its number, from the start, and the
    seed.
    """

    def __init__(
        self,
        examples: Examples,
        method: Method,
        layout: BatchLayout,
        size: int,
        seed: int,
        batch_tokens: int = 0,
        ranks: int = 1,
    ) -> None:
        """Args:
        size: examples of a batch, over all ranks.
        batch_tokens: tokens of a batch if batches are cut by tokens; `size` is then unused.
        ranks: processes that share such a batch.
        """
        self._examples = examples
        self._method = method
        self._streams = layout.streams
        self.size = size
        self._seed = seed
        self._cut: list[np.ndarray] | None = None
        if examples.by_tokens:
            self._cut = batches_by_tokens(examples, batch_tokens, seed, method.packing, ranks)
        self._epoch: tuple[int, Sequence[np.ndarray] | np.ndarray] | None = None
        """The latest epoch, and the examples of its batches, int64 [batches, size] if these are of
        equal size.
        """

    @property
    def batches_per_epoch(self) -> int:
        return self._examples.count // self.size if self._cut is None else len(self._cut)

    def begins_epoch(self, number: int) -> bool:
        """Whether a batch is the first of an epoch."""
        return number % self.batches_per_epoch == 0

    def of_batch(self, number: int) -> np.ndarray:
        """The examples of a batch, of all ranks, int64 [B]."""
        epoch, row = divmod(number, self.batches_per_epoch)
        if self._epoch is None or self._epoch[0] != epoch:
            self._epoch = epoch, self._of_epoch(epoch)
        return self._epoch[1][row]

    def share(self, number: int, rank: int, ranks: int) -> np.ndarray:
        """The examples of a batch that one rank reads."""
        return np.array_split(self.of_batch(number), ranks)[rank]

    def documents_in(self, numbers: Iterable[int]) -> int:
        """Number of documents that some batches read in whole or in part, over all ranks."""
        return len(
            self._examples.documents_in(
                np.concatenate([self.of_batch(number) for number in numbers])
            )
        )

    def few_documents(self, accumulate: int) -> str | None:
        """Warning if updates read too few documents, and fewer than random segments would; None: no
        warning.

        Args:
            accumulate: forward batches of an update.
        """
        if not self._method.grouped_by or self._cut is not None:
            return None
        count = min(UPDATES_LOOKED_AT * accumulate, self.batches_per_epoch)

        def documents_per_update(order: Sequence[np.ndarray] | np.ndarray) -> float:
            """Mean number of documents in the first updates."""
            updates = np.array_split(np.asarray(order)[:count], max(1, count // accumulate))
            counts = [len(self._examples.documents_in(update.flatten())) for update in updates]
            return float(np.mean(counts))

        grouped = documents_per_update(self._of_epoch(0))
        random_order = shuffled_order(self._examples.count, self.size, self._seed, 0)
        random = documents_per_update(random_order)
        if round(grouped) >= ENOUGH_DOCUMENTS or grouped > NEARLY_RANDOM * random:
            return None
        return (
            f"documents an update: {grouped:.0f} on average, {random:.0f} if its segments were random, so it learns less "
            f"from them. {self._method.grouped_by} says how segments are grouped; a larger --batch-tokens or "
            "--accumulate has more groups"
        )

    def _of_epoch(self, epoch: int) -> Sequence[np.ndarray] | np.ndarray:
        if self._cut is not None:
            # Batches keep examples of similar length, so that they need little padding; only their
            # order is drawn.
            order = np.random.default_rng([self._seed, epoch]).permutation(len(self._cut))
            return [self._cut[place] for place in order.tolist()]
        if self._streams:
            return aligned_order(self._examples.count, self.size)
        return self._method.order(self._examples.count, self.size, self._seed, epoch)
