"""EMAR: memory is activated, and then reconsolidated by prototypes of the labels."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stages.examples.documents import Documents, LabelledBatch
from stages.examples.examples import Task
from stages.memory.episodic import representatives
from stages.methods.method import Update
from stages.methods.stream.classifying import add_gradients
from stages.methods.stream.config import EmarConfig
from stages.methods.stream.memory import AT_ONCE, KEEP, KeepsDocuments
from stages.models.head_settings import MatcherSettings
from stages.models.heads import Matcher
from stages.models.language_model import LanguageModel, evaluating

WITH_BATCH = KEEP + 1
AGAIN = KEEP + 2
"""Purposes of random numbers, in addition to those of `memory`."""


class Emar(KeepsDocuments[EmarConfig]):
    """The first pass learns a task together with M. Then the documents nearest to K-means' centres
    are written to M.

    Weights of labels begin at their encoded names, if the head has these. Each further pass is a
    round. Activation learns the task together with M. Reconsolidation is a pass over M that draws
    the encoder to the prototypes of the previous pass.

    Source: Han et al. 2020 (ACL 2020, aclanthology.org/2020.acl-main.573), algorithm 1; softmax
    over known labels as in the paper, inner products and one pass on the task and M as in its code.
    """

    _batches = _ended = 0
    """Forward batches of the task that were learnt, and completed passes over it."""

    def begin_stream(self, model: LanguageModel, tasks: Sequence[Task], seed: int) -> None:
        super().begin_stream(model, tasks, seed)
        names = cast(MatcherSettings, model.config.head).names
        # a resumed stream has learnt its weights
        if not names or self._head.seen.any():
            return
        batch = batch_of_names(names, self._split).to(self._device)
        with torch.no_grad():
            self._head.weight.copy_(self._represent([batch]))

    def begin_task(self, task: Task) -> None:
        super().begin_task(task)
        self._batches = 0
        self._ended = 0
        examples = cast(Documents, task.examples)
        labels = np.unique(examples.labels[examples.chosen]).astype(np.int64)
        self._head.seen[torch.from_numpy(labels).to(self._device)] = True

    def end_task(self, task: Task) -> None:
        """End the current pass if half of it was read: updates of several batches need not end with
        a pass.

        A task is written even if less of it was read. Prototypes are computed with the final
        weights.
        """
        update, of_pass = self._latest
        self._end_passes(update, (2 * self._batches + of_pass) // (2 * of_pass))
        if not self._is_written:
            self._select()
        self._head.prototypes.copy_(self.made_prototypes())

    @property
    def _head(self) -> Matcher:
        return cast(Matcher, self._model.head)

    def step(self, update: Update) -> Tensor:
        def beside_memory(batch: LabelledBatch) -> Tensor:
            loss = self._loss_with_memory(update, batch)
            self._batches += 1
            return loss

        loss, batches = add_gradients(update, beside_memory)
        of_pass = self._of_pass(len(batches[-1].labels))
        update.change_weights()
        self._latest = update, of_pass
        self._end_passes(update, self._batches // of_pass)
        return loss

    def _of_pass(self, size: int) -> int:
        """Batches of a pass over the task."""
        return cast(Documents, self._tasks[self.task].examples).count // size

    def _loss_with_memory(self, update: Update, batch: LabelledBatch) -> Tensor:
        """The mean loss of a batch and its share of M; one pass reads all of M once."""
        loss = update.loss_of(batch)
        size = len(batch.labels)
        num_batches = self._of_pass(size)
        number_of_pass, number = divmod(self._batches, num_batches)
        random = self.random(WITH_BATCH, self.task, number_of_pass)
        order = random.permutation(self.memory.rows)

        # batch `number` of a pass reads this part of M; parts differ by one example at most
        first = len(order) * number // num_batches
        stop = len(order) * (number + 1) // num_batches
        num_stored = stop - first
        if not num_stored:
            return loss
        (stored,) = self.batches(order[first:stop], num_stored)
        stored_loss = update.loss_of(stored)

        # each example counts the same, wherever it comes from
        total = size * loss + num_stored * stored_loss
        return total / (size + num_stored)

    def _end_passes(self, update: Update, number: int) -> None:
        """End passes until `number` are complete; an update may complete several."""
        while self._ended < number:
            self._ended += 1
            if self._is_written:
                self._reconsolidate(update, self._ended)
            else:
                self._select()
            self._head.prototypes.copy_(self.made_prototypes())

    @property
    def _is_written(self) -> bool:
        """Whether memory has documents of the task."""
        return self.task in self.memory.tasks

    def _select(self) -> None:
        """Write the documents of the task nearest to the centres of K-means."""
        rows = cast(Documents, self._tasks[self.task].examples).chosen
        random = self.random(KEEP, self.task)
        chosen = representatives(
            self.represented(rows).double().cpu().numpy(), self.settings.size, random
        )
        self.memory.write(rows[chosen], self.task, 1.0, random)

    def _reconsolidate(self, update: Update, done: int) -> None:
        """A pass over M in small batches: a step on -log softmax over p_y · h(x), p_y being
        constant.
        """
        rows = self.random(AGAIN, self.task, done).permutation(self.memory.rows)
        with evaluating(self._head):  # it then scores by prototypes
            for batch in self.batches(rows, self.settings.consolidation_batch):
                update.backward(update.loss_of(batch))
                update.change_weights()

    def represented(self, rows: np.ndarray) -> Tensor:
        """h of documents [n], [n, d]; no gradients."""
        return self._represent(self.batches(rows, AT_ONCE))

    def _represent(self, batches: Iterable[LabelledBatch]) -> Tensor:
        dtype = self._head.weight.dtype
        representations = []
        with torch.no_grad(), evaluating(self._model):
            for batch in batches:
                hidden = self._model.read(batch).hidden
                representations.append(self._head.represent(hidden, batch.mask).to(dtype))
        return torch.cat(representations)

    @torch.no_grad()
    def made_prototypes(self) -> Tensor:
        """Prototypes p_y = (r_y + Σ h(x)) / (1 + |M_y|) over the documents M_y in memory with label
        y, [|Y|, d].
        """
        rows = self.memory.rows
        sums = self._head.weight.detach().clone()
        if not len(rows):
            return sums

        stored_labels = self._split.labels[rows].astype(np.int64)
        labels = torch.from_numpy(stored_labels).to(self._device)
        sums.index_add_(0, labels, self.represented(rows))
        num_of_label = F.one_hot(labels, len(sums)).sum(0)
        return sums / (1 + num_of_label)[:, None]

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"batches": self._batches, "ended": self._ended}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._batches = state["batches"]
        self._ended = state["ended"]


def batch_of_names(names: Sequence[Sequence[int]], split: Documents) -> LabelledBatch:
    """Names of labels, as tokens, in a batch that is read like documents of a split."""
    ended = [[*name, split.eos] for name in names]
    numbers = np.arange(len(names))
    offsets = np.cumsum([0, *map(len, ended)])
    documents = replace(
        split,
        ids=np.concatenate(ended),
        offsets=offsets,
        labels=numbers,
        task_numbers=0 * numbers,
        chosen=numbers,
    )
    return documents.batch(numbers)
