"""Sparse memory finetuning: an update changes only the slots that its batch uses more than earlier
text.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor, nn
from torch import distributed as ranks

from stages.examples.examples import Batch, Examples, Task
from stages.methods.lm import LanguageModeling
from stages.methods.method import ParameterGroup, SideInputs, Update
from stages.methods.settings import SparseMemoryConfig
from stages.models.language_model import LanguageModel, evaluating
from stages.models.layers.product_keys import HasSlots

BACKGROUND = 3
"""Constant that separates these random draws from others of the same seed."""


def most_specific(
    reads: Int64[Tensor, " slots"], batches_with: Int64[Tensor, " slots"], batches: int, count: int
) -> Bool[Tensor, " slots"]:
    """The slots with the largest TF-IDF among those that were read; ties go to the smaller number.

    TF-IDF is c / Σ c · log((|B| + 1) / (b + 1)): c counts reads of a slot, b the background batches
    B that read it.

    Slot 0 is read most, but by every background batch; slot 2 is not read:

    >>> most_specific(torch.tensor([5, 2, 0, 1]), torch.tensor([9, 0, 0, 0]), batches=9, count=2)
    tensor([False,  True, False,  True])

    Source: Lin et al. 2025 (arXiv:2510.15103), section 3.
    """
    term_frequency = reads / reads.sum().clamp(min=1)
    inverse_frequency = torch.log((batches + 1) / (batches_with.double() + 1))
    scores = term_frequency * inverse_frequency

    is_read = reads > 0
    scores = scores.masked_fill(~is_read, -torch.inf)
    num_chosen = min(count, int(is_read.sum()))

    # stable, so that the smaller number comes first
    order = scores.argsort(descending=True, stable=True)
    chosen = torch.zeros_like(is_read)
    chosen[order[:num_chosen]] = True
    return chosen


class SparseMemory(LanguageModeling[SparseMemoryConfig]):
    """Values of the chosen slots alone learn; all other weights keep their bytes.

    If layers share values, their reads are added. The optimizer may keep moments of a slot that is
    no longer chosen, but does not move it.

    Source: Lin et al. 2025 (arXiv:2510.15103), section 3.
    """

    def __init__(self, settings: SparseMemoryConfig, side_inputs: SideInputs | None = None) -> None:
        super().__init__(settings, side_inputs)
        self._batches_with = dict[str, Tensor]()
        """Number of batches of the background that read each slot, int64 [slots], by the name of
        the table.
        """

    def parameter_groups(self, model: LanguageModel) -> list[ParameterGroup]:
        return [ParameterGroup(list(_tables(model).values()))]

    def begin_stream(self, model: LanguageModel, tasks: Sequence[Task], seed: int) -> None:
        self._model = model
        self._seed = seed
        self._tables = _tables(model)
        # reads of each slot since the update began
        self._reads = {
            name: torch.zeros(len(table), dtype=torch.int64) for name, table in self._tables.items()
        }

        name_of_table = {id(table): name for name, table in self._tables.items()}
        for layer in _layers(model):
            layer.lookup.eval()  # statistics of queries stay those of the earlier text
            name = name_of_table[id(layer.table)]
            layer.lookup.register_forward_hook(self._counter(name))

    def _counter(self, name: str) -> Any:
        """A hook that counts which slots of a table are read."""

        def count(module: nn.Module, inputs: object, output: Any) -> None:
            reads = self._reads[name]
            reads += torch.bincount(output.slots.flatten().cpu(), minlength=len(reads))

        return count

    def step(self, update: Update) -> Tensor:
        self._forget()
        losses = list[Tensor]()
        for part in update.batches():
            loss = part.weighted(update.loss(part))
            update.backward(loss)
            losses.append(loss.detach())
            if not self._batches_with:
                self._read_background(part.batch)

        frozen = {name: ~self._chosen(name) for name in self._tables}
        before = {name: table.detach().clone() for name, table in self._tables.items()}
        for name, table in self._tables.items():
            if table.grad is not None:
                # Before clipping: gradients of frozen slots must not shorten those of the chosen.
                table.grad[frozen[name]] = 0

        update.change_weights()
        with torch.no_grad():
            for name, table in self._tables.items():
                # Moments would move slots chosen in earlier updates, and weight decay all of them.
                table[frozen[name]] = before[name][frozen[name]]
        return torch.stack(losses).sum()

    def _chosen(self, name: str) -> Tensor:
        device = self._tables[name].device
        reads = self._reads[name].to(device)
        batches_with = self._batches_with[name].to(device)
        # each process reads a share of the batch, and all change the same slots
        if ranks.is_initialized():
            ranks.all_reduce(reads)
        return most_specific(reads, batches_with, self.settings.background, self.settings.slots)

    def _forget(self) -> None:
        for reads in self._reads.values():
            reads.zero_()

    def _read_background(self, like: Batch) -> None:
        """Count in how many background batches, as large as this one, each slot is read; before the
        first update.
        """
        text: Examples = self.side_inputs["background"]
        device = like.inputs.device
        # the reads of the batch itself are put back in the end
        reads_of_batch = {name: reads.clone() for name, reads in self._reads.items()}
        self._batches_with = {name: torch.zeros_like(reads) for name, reads in self._reads.items()}

        # as many rows as all processes have together
        num_processes = ranks.get_world_size() if ranks.is_initialized() else 1
        size = min(len(like.inputs) * num_processes, text.count)
        random = np.random.default_rng([self._seed, BACKGROUND])
        with torch.no_grad(), evaluating(self._model):
            for _ in range(self.settings.background):
                self._forget()
                which = random.choice(text.count, size, replace=False)
                batch = text.batch(which).to(device)
                self._model.read(batch)
                for name, reads in self._reads.items():
                    self._batches_with[name] += reads > 0
        self._reads.update(reads_of_batch)

    def state_dict(self) -> dict[str, Any]:
        return dict(self._batches_with)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._batches_with = dict(state)


def _layers(model: LanguageModel) -> list[HasSlots]:
    """The layers that read slots."""
    return [module for module in model.modules() if isinstance(module, HasSlots)]


def _tables(model: LanguageModel) -> dict[str, nn.Parameter]:
    """Values of slots by name; values shared by layers appear once."""
    # by identity, since `==` of tensors compares their elements
    tables = {id(layer.table) for layer in _layers(model)}
    return {name: weight for name, weight in model.named_parameters() if id(weight) in tables}
