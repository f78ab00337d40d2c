"""The interface of a training objective: the batches that it needs and the loss that it computes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from stages.encoding.encode import EncodedBlock
from stages.examples.batching import shuffled_order
from stages.examples.examples import Batch, Examples, Task
from stages.methods.config import MethodSettings
from stages.models.backbone import State, each, named_below
from stages.models.config import BackboneConfig
from stages.models.language_model import LanguageModel

S = TypeVar("S", bound=MethodSettings)


class BatchIndex(NamedTuple):
    """Position of a forward batch in a training run: its `number`, and its `update` of `updates`;
    all from 0.
    """

    number: int
    update: int
    updates: int
    seed: int

    @property
    def done(self) -> float:
        """Share of the updates that came before."""
        return self.update / self.updates


class Carried(NamedTuple):
    """State after a batch, for the next batch of the same streams; empty by default."""

    state: State = None
    """The backbone's."""
    past: Mapping[str, Tensor] = {}
    """The method's own, by name."""

    def each(self, change: Callable[[Tensor], Tensor]) -> "Carried":
        """The same with every tensor changed, as by `Tensor.detach`."""
        return Carried(each(self.state, change), each(self.past, change) or {})

    def tensors(self) -> dict[str, Tensor]:
        """All tensors, by the names that `of` reads.

        >>> carried = Carried({"h": torch.ones(1)}, {"keys": torch.zeros(1)})
        >>> list(carried.tensors())
        ['state/h', 'past/keys']
        >>> Carried.of(carried.tensors()) == carried
        True
        """
        parts = {"state/": self.state or {}, "past/": self.past}
        return {
            prefix + name: tensor for prefix, part in parts.items() for name, tensor in part.items()
        }

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Self:
        """State from the tensors that `tensors` returned."""
        state, past = (named_below(tensors, prefix) for prefix in ("state/", "past/"))
        return cls(state or None, past)


class BatchLayout(NamedTuple):
    """How the rows of batches belong together."""

    streams: bool = False
    """Whether row b of a batch goes on from row b of the one before, and with it the state; the
    batches of an epoch are then those of `aligned_order`."""
    rows_together: int = 1
    """Rows of a batch that must stay together: a batch is divided among processes between these
    groups.
    """


class ParameterGroup(NamedTuple):
    """Parameters with the same learning rate and clipping."""

    parameters: list[nn.Parameter]
    lr_factor: float = 1.0
    """Their learning rate, as a multiple of the run's."""
    constant_lr: float | None = None
    """Their learning rate at every step, without weight decay; None: that of the run."""
    apart: bool = False
    """Whether their gradient is clipped separately."""


@dataclass(frozen=True)
class SideInputs:
    """Inputs of a method besides tokens.

    `packing`: segments, int64 [S], ordered so that neighbours are similar; None: there is none.
    `neighbor_tokens`: by split, the tokens of each token's neighbours, int [T, k], -1 where one is
    missing.
    """

    packing: np.ndarray | None = None
    neighbor_tokens: Mapping[str, np.ndarray] = field(default_factory=dict)
    keys: np.ndarray | None = None
    background: Examples | None = None


class Method(ABC, Generic[S]):
    """A training objective. The loop asks for an epoch's batches, forms each and minimizes its
    loss.

    `side_inputs`: its inputs besides tokens.
    """

    hints: ClassVar[str] = ""
    """Advice for a loss that is not a number, as items of a list."""
    grouped_by: ClassVar[str] = ""
    """Name of the setting that cuts a batch into groups of similar segments, if there is one."""
    keeps_graph: ClassVar[bool] = False
    """Whether gradients flow through the carried state into earlier batches of the same update."""
    carries_past: ClassVar[bool] = False
    """Whether it carries its own tensors besides the backbone's state."""

    def __init__(self, settings: S, side_inputs: SideInputs | None = None) -> None:
        self.settings = settings
        self.side_inputs = side_inputs or SideInputs()

    def parameter_groups(self, model: LanguageModel) -> list[ParameterGroup]:
        """The parameters to train; all others stay as they are. By default all are trained."""
        return [ParameterGroup(list(model.parameters()))]

    def layout(self, model: BackboneConfig) -> BatchLayout:
        """Layout of its batches. By default rows are streams if the backbone carries a state."""
        return BatchLayout(streams=model.carries_state)

    def order(self, count: int, size: int, seed: int, epoch: int) -> np.ndarray:
        """Examples of an epoch's batches, int64 [batches, size], none twice, drawn from (seed,
        epoch); not of streams.

        Examples that do not fill the last batch are left out; the next epoch draws others. By
        default the order is random.
        """
        return shuffled_order(count, size, seed, epoch)

    def batch(self, examples: Examples, which: np.ndarray, index: BatchIndex) -> Batch:
        """The batch of some examples [B]."""
        return examples.batch(which)

    @abstractmethod
    def loss(self, model: LanguageModel, batch: Batch, carried: Carried) -> tuple[Tensor, Carried]:
        """Compute the loss, a scalar: the mean over the batch's tokens, in nats; and the state
        after the batch.

        Training adds the auxiliary loss of an encoding.

        Args:
            carried: state after the previous batch, constant unless the update keeps its graph;
                empty at the start of streams.
        """

    def log_prob(self, model: LanguageModel, read: EncodedBlock, starts: Tensor) -> Tensor:
        """Log-probability of validation tokens, float [n], in nats; no gradients.

        By default that of the model alone.

        Args:
            read: the tokens, as the model has read them.
            starts: where each token's segment begins among them, int64 [n].
        """
        return model.log_prob(read.key("hidden"), read.targets)[0]


class Update(Protocol):
    """One update of the weights, as the loop prepares it."""

    accumulate: int
    """Number of its forward batches."""
    keeps_graph: bool
    """Whether state carried between these batches keeps its graph: then their losses share one
    `backward`.
    """
    number: int
    """Updates before it."""
    optimizer: torch.optim.Optimizer
    """The optimizer of the parameter groups; `change_weights` makes its step."""

    def batches(self) -> Iterator[Batch]:
        """This process's share of each forward batch, on its device; `backward` of its loss must
        follow.
        """

    def loss(self, batch: Batch) -> Tensor:
        """Compute the loss of a batch, with the model's auxiliary losses, in the run's precision;
        keeps its state.
        """

    def weighted(self, loss: Tensor) -> Tensor:
        """The loss of the latest batch times its share of the update's tokens."""

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of a loss, over all processes."""

    def change_weights(self) -> None:
        """Clip the gradients, make the optimizer's step and forget them."""


class Remembers(ABC):
    """A method with state besides weights from update to update; every checkpoint holds it.

    It must be the same in all processes: the checkpoint holds the state of the first.
    """

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return the state, by name: tensors, and values that JSON can hold."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `state_dict` returned; its tensors are on the CPU."""


class LearnsTasks(ABC):
    """A method that does something between the tasks of a stream; a corpus is a stream of one task."""

    @abstractmethod
    def begin_stream(self, model: LanguageModel, tasks: Sequence[Task], seed: int) -> None:
        """Receive the tasks, in order, before the first update of a run; a resumed run has its
        state by then.

        Args:
            seed: seed of all random numbers of the method.
        """

    def begin_task(self, task: Task) -> None:  # noqa: B027
        """Prepare for a task, before its first update. By default nothing is done."""

    def end_task(self, task: Task) -> None:  # noqa: B027
        """Finish a task, after its last update. By default nothing is done."""


class KeepsExamples(ABC):
    """A method that keeps examples of the training split; other stages read them with the model."""

    @abstractmethod
    def examples(self) -> tuple[np.ndarray, np.ndarray]:
        """Kept documents, int64 [M], in the order of writing, and the place in the stream of each
        one's task.
        """


class WritesFiles(ABC):
    """A method that writes further files next to the model."""

    @abstractmethod
    def write_files(self, decode: Callable[[list[int]], str], add: Callable[[str], Path]) -> None:
        """Write the files.

        Args:
            decode: the text of tokens.
            add: makes a file with a given name and returns its path.
        """


class Grows(ABC):
    """A method of tasks whose model grows when one begins; the optimizer begins anew with each."""

    @abstractmethod
    def resize(self, model: LanguageModel, place: int) -> None:
        """Resize a model from its size before the first task to that in the task at a place;
        weights are loaded later.

        Args:
            place: in the stream, from 0.
        """


class OwnsStep(ABC):
    """A method that makes the whole update itself, if one backward pass of each batch's loss is not
    enough.
    """

    @abstractmethod
    def step(self, update: Update) -> Tensor:
        """Make one update.

        Returns: the loss to report, a scalar, the mean per token, in nats. It is read later, so
            that no GPU waits for the host; if it is not a number, the run ends.
        """
