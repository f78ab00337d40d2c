"""The interface of a training objective: the batches that it needs and the loss that it computes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from stages.encoding.encode import EncodedBlock
from stages.examples.batching import shuffled_order
from stages.examples.examples import Batch, Examples, Task
from stages.methods.config import MethodSettings
from stages.models.backbone import Encoding, State, each, named_below
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


class Loss(NamedTuple):
    """Loss of a batch, and the state for the next one."""

    mean: Tensor
    """The mean over the batch's tokens, in nats; a scalar."""
    carried: Carried = Carried()
    """State after the batch."""
    auxiliary: tuple[Tensor, ...] = ()
    """Auxiliary losses of layers, a scalar for each time that the backbone read, and of the method;
    training adds them, and reports them apart."""

    @classmethod
    def of(
        cls,
        mean: Tensor,
        *encodings: Encoding,
        carried: Carried | None = None,
        auxiliary: Iterable[Tensor] = (),
    ) -> Self:
        """The loss with the auxiliary losses of what the backbone read.

        Args:
            encodings: every encoding that the mean was computed from, in order.
            carried: state after the batch; None: nothing is carried.
            auxiliary: further scalars to add, such as a penalty.
        """
        losses = [encoding.auxiliary_loss for encoding in encodings]
        of_layers = [loss for loss in losses if loss is not None]
        return cls(mean, carried or Carried(), (*of_layers, *auxiliary))

    @property
    def total(self) -> Tensor:
        """The loss that training minimizes."""
        return sum(self.auxiliary, start=self.mean)


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


SideInputs = Mapping[str, Any]
"""Inputs besides tokens, by their names in `stages.training.INPUTS`."""


class KeptDocuments(NamedTuple):
    """Documents of the training split that a method keeps, in the order of writing."""

    rows: np.ndarray
    """Numbers of the documents in the split, int64 [M]."""
    tasks: np.ndarray
    """Place in the stream of each document's task, int64 [M]."""


class UpdateBatch(NamedTuple):
    """A process's share of one forward batch of an update."""

    batch: Batch
    before: Carried = Carried()
    """State before it; empty where its streams begin."""
    accumulate: int = 1
    """Number of forward batches of the update."""
    weight: float | None = None
    """Its share of the update's tokens; None: all batches have equal shares."""

    def weighted(self, loss: Tensor) -> Tensor:
        """The mean loss of the batch times its share of the update's tokens."""
        if self.weight is not None:
            return loss * self.weight
        # No division by 1: it would add an operation to the graph of every update.
        return loss if self.accumulate == 1 else loss / self.accumulate


class Method(ABC, Generic[S]):
    """A training objective: `loss` computes it, and hooks change the rest of training.

    Every hook does the usual thing, or nothing, until a method overrides it. A run calls them in
    this order: `parameter_groups`, `layout`, `resize` and `load_state_dict` where it resumes,
    `begin_stream`. Then come for each task `begin_task`, its updates, and `end_task`; an update
    calls `batch` and `loss` for each of its batches, through `step`. A corpus is a stream of one
    task. `state_dict` is part of every checkpoint; `kept_documents` and `write_files` are asked
    at the end.

    `side_inputs`: the inputs besides tokens that its settings name, as far as a run has them.
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
        self.side_inputs = side_inputs or {}

    # The loss

    @abstractmethod
    def loss(self, model: LanguageModel, batch: Any, carried: Carried) -> Loss:
        """Compute the loss of a batch, with the auxiliary losses of its encodings; see `Loss.of`.

        Args:
            batch: what `batch` of this method made; a method names its own kind of batch.
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

    # What learns, and from which batches

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

    @property
    def packing(self) -> np.ndarray | None:
        """Examples in an order whose neighbours are similar, int64 [S], if batches of unequal
        examples follow one; None: they are cut by length.
        """
        return None

    def batch(self, examples: Examples, which: np.ndarray, index: BatchIndex) -> Batch:
        """The batch of some examples [B]. By default nothing is added to them."""
        return examples.batch(which)

    def step(self, update: "Update") -> Tensor:
        """Make one update. By default the gradients of its batches' mean loss change the weights.

        Returns: the loss to report, a scalar, the mean per token, in nats. It is read later, so
            that no GPU waits for the host; if it is not a number, the run ends.
        """
        return update.plain_step()

    # Tasks

    def begin_stream(self, model: LanguageModel, tasks: Sequence[Task], seed: int) -> None:
        """Receive the tasks, in order, before the first update of a run; a resumed run has its
        state by then.

        Args:
            seed: seed of all random numbers of the method.
        """

    def begin_task(self, task: Task) -> None:
        """Prepare for a task, before its first update."""

    def end_task(self, task: Task) -> None:
        """Finish a task, after its last update."""

    def resize(self, model: LanguageModel, place: int) -> None:
        """Resize a model from its size before the first task to that in the task at a place.

        Only a method whose settings say that it `grows` has anything to do. Weights are loaded
        later.

        Args:
            place: in the stream, from 0.
        """

    # What it keeps

    def state_dict(self) -> dict[str, Any]:
        """Return the state besides weights, by name: tensors, and values that JSON can hold.

        It must be the same in all processes: a checkpoint holds the state of the first.
        """
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `state_dict` returned; its tensors are on the CPU."""

    def kept_documents(self) -> KeptDocuments | None:
        """Documents of the training split that other stages read with the model; None: none."""
        return None

    def figures(self) -> dict[str, Any]:
        """Figures of the model besides those of every training run, JSON; by default none."""
        return {}

    def write_files(self, decode: Callable[[list[int]], str], add: Callable[[str], Path]) -> None:
        """Write further files next to the model.

        Args:
            decode: the text of tokens.
            add: makes a file with a given name and returns its path.
        """


class Update(Protocol):
    """One update of the weights, as the loop prepares it."""

    accumulate: int
    """Number of its forward batches."""
    number: int
    """Updates before it."""
    optimizer: torch.optim.Optimizer
    """The optimizer of the parameter groups; `change_weights` makes its step."""

    def batches(self) -> Iterator[UpdateBatch]:
        """This process's share of each forward batch, on its device; `backward` of its loss must
        follow.
        """

    def loss(self, part: UpdateBatch) -> Tensor:
        """Compute the loss of a forward batch, with the model's auxiliary losses, in the run's
        precision; keeps its state for the next.
        """

    def loss_of(self, batch: Batch) -> Tensor:
        """Compute the loss of any other batch, such as one of a memory; no state is carried."""

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of a loss, over all processes."""

    def change_weights(self) -> None:
        """Clip the gradients, make the optimizer's step and forget them."""

    def plain_step(self) -> Tensor:
        """Make the usual update: gradients of the mean loss over all tokens, then the optimizer's
        step.

        Returns: the loss, a scalar: the mean over tokens, in nats.
        """
