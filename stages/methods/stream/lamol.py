"""LAMOL: a language model answers; before each task it writes examples of earlier tasks, and learns
them again.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from stages.examples.documents import documents_of, labelled
from stages.examples.examples import Batch, Examples, Task
from stages.methods.config import samples_file
from stages.methods.method import BatchIndex, Carried, Loss, SideInputs
from stages.methods.stream.classifying import Classifying
from stages.methods.stream.language_config import LamolConfig
from stages.methods.stream.spelled import (
    Example,
    SpelledBatch,
    Spelling,
    answer_loss,
    task_token,
    write,
)
from stages.models.language_model import LanguageModel

WRITE, ORDER, REAL = range(3)
"""Purposes of random numbers: a generator is made anew of (seed, purpose, place)."""
ROWS = 256
"""Sequences that are written together."""


class Samples(NamedTuple):
    """Examples of earlier tasks for the current one, and the number of attempts at writing them."""

    examples: list[Example]
    asked: int = 0
    written: int = 0


class Lamol(Classifying[LamolConfig]):
    """L = L_answer + λ L_text: -log p of the answer given the text, and of the whole given its
    first token.

    Each batch has the same share of the samples as of its task. The optimizer continues from task
    to task.

    Source: Sun et al. 2020 (arXiv:1909.03329), section 3.
    """

    def __init__(self, settings: LamolConfig, side_inputs: SideInputs | None = None) -> None:
        super().__init__(settings, side_inputs)
        self._samples = dict[int, Samples]()
        self._place = 0

    def begin_stream(self, model: LanguageModel, tasks: Sequence[Task], seed: int) -> None:
        super().begin_stream(model, tasks, seed)
        assert model.config.head is not None
        self._spelling = Spelling.of(model.config.head, self._split)

    def begin_task(self, task: Task) -> None:
        """Write the samples for the task."""
        self._place = self.place(task)
        before = self._tasks[: self._place]
        number = math.ceil(self.settings.gamma * task.examples.count)
        if not (before and number):
            return
        if self.settings.samples == "real":
            self._samples[self._place] = self._real(before, number)
            return

        # one first token shared by all tasks, or one for each
        begins = list(dict.fromkeys(map(self._begin, before)))
        number_of_each = math.ceil(number / len(begins))
        examples: list[Example] = []
        asked = 0
        written = 0
        for begin in begins:
            samples = self._written(begin, number_of_each)
            examples += samples.examples
            asked += samples.asked
            written += samples.written
        self._samples[self._place] = Samples(examples, asked, written)

    def _begin(self, task: Task) -> int:
        """The first token of written examples of a task."""
        if self.settings.samples == "gen":
            return self._spelling.any_task
        documents = documents_of(task.examples)
        return task_token(self._spelling.head, int(documents.task_numbers[documents.chosen[0]]))

    def _written(self, begin: int, number: int) -> Samples:
        """Examples that the model writes; an invalid one is written again, a few times."""
        valid = list[Example]()
        written = 0
        for attempt in range(1 + self.settings.resample):
            missing = number - len(valid)
            if missing == 0:
                break
            random = self.random(WRITE, self._place, begin, attempt)
            for first in range(0, missing, ROWS):
                begins = np.full(min(ROWS, missing - first), begin)
                sequences = write(self._model, begins, self._spelling, self.settings.top_k, random)
                for tokens in sequences:
                    example = self._spelling.parsed(tokens, begin)
                    if example is not None:
                        valid.append(example)
            written += missing
        return Samples(valid, number, written)

    def _real(self, before: Sequence[Task], number: int) -> Samples:
        """Real examples of earlier tasks, in equal shares: an upper bound for samples."""
        number_of_each = math.ceil(number / len(before))
        samples = list[Example]()
        for place, task in enumerate(before):
            examples = documents_of(task.examples)
            random = self.random(REAL, self._place, place)
            num_chosen = min(number_of_each, examples.count)
            chosen = random.choice(examples.count, num_chosen, replace=False)

            begins = [self._begin(task)] * num_chosen
            batch = examples.batch(chosen)
            samples += self._spelling.examples(batch, begins)
        return Samples(samples, number_of_each * len(before))

    def batch(self, examples: Examples, which: np.ndarray, index: BatchIndex) -> Batch:
        begins = [self._begin(Task("", examples))] * len(which)
        real = self._spelling.examples(labelled(examples.batch(which)), begins)
        samples = self._share(len(which), examples.count, index.number)
        return self._spelling.batch([*real, *samples])

    def _share(self, size: int, of: int, number: int) -> list[Example]:
        """The samples of a batch of `size` of a task's `of` examples, by its number; all come
        equally often.
        """
        samples = self._samples.get(self._place, Samples([])).examples
        if not samples:
            return []
        count = -(-size * len(samples) // of)  # in integers: rounding of floats would add a sample
        numbers = np.arange(number * count, (number + 1) * count)

        # samples are read in cycles, each in an order of its own
        cycles, places = np.divmod(numbers, len(samples))
        orders = {}
        for cycle in np.unique(cycles).tolist():
            orders[cycle] = self.random(ORDER, self._place, cycle).permutation(len(samples))
        return [
            samples[orders[cycle][place]]
            for cycle, place in zip(cycles.tolist(), places.tolist(), strict=True)
        ]

    def loss(self, model: LanguageModel, batch: SpelledBatch, carried: Carried) -> Loss:
        answers = answer_loss(model, batch)
        if not self.settings.lm_weight:
            return answers
        encoding = model.encode(batch.written)
        text = Loss.of(self._of_text(model, encoding.hidden, batch), encoding)
        mean = answers.mean + self.settings.lm_weight * text.mean
        return Loss(mean, auxiliary=answers.auxiliary + text.auxiliary)

    def _of_text(self, model: LanguageModel, hidden: Tensor, batch: SpelledBatch) -> Tensor:
        """Mean loss over all tokens; `<ans>` has a larger weight."""
        assert batch.mask is not None
        border = batch.mask & (batch.targets == self._spelling.answer)
        others = batch.mask & ~border
        num_others = others.sum()
        num_borders = border.sum()
        sum_of_others = model.loss(hidden[others], batch.targets[others]) * num_others
        sum_of_borders = model.loss(hidden[border], batch.targets[border]) * num_borders

        weight = self.settings.ans_weight
        total = sum_of_others + weight * sum_of_borders
        return total / (num_others + weight * num_borders)

    def write_files(self, decode: Callable[[list[int]], str], add: Callable[[str], Path]) -> None:
        """Write the samples of each task as text, with the first token of each."""
        names = {self._spelling.any_task: "<gen>"}
        for task in self._tasks:
            names.setdefault(self._begin(task), f"<task:{task.name}>")

        for place, samples in self._samples.items():
            lines = []
            for example in samples.examples:
                text = decode(example.text.tolist())
                answer = decode(example.answer.tolist())
                lines.append({"begin": names[example.begin], "text": text, "answer": answer})
            figures = {
                "asked": samples.asked,
                "written": samples.written,
                "kept": len(lines),
                "samples": lines,
            }
            add(samples_file(place + 1)).write_text(json.dumps(figures, indent=1) + "\n", "utf-8")

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"place": self._place}
        for place, (examples, asked, written) in self._samples.items():
            # an array more, since there may be no examples to join
            rows = [np.zeros(0, np.int64)]
            for example in examples:
                # ids are not negative, so negative numbers end the parts
                end = -1 - example.begin
                row = np.concatenate((example.text, [-1], example.answer, [end]))
                rows.append(row)
            joined = np.concatenate(rows)
            state[f"samples/{place}"] = torch.from_numpy(joined)
            state[f"counts/{place}"] = torch.tensor([asked, written])
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._place = state["place"]
        for name, counts in state.items():
            if name.startswith("counts/"):
                place = int(name.removeprefix("counts/"))
                rows = state[f"samples/{place}"].numpy().astype(np.int64)
                self._samples[place] = Samples(_examples(rows), *counts.tolist())


def _examples(rows: np.ndarray) -> list[Example]:
    """Examples from the integers of a checkpoint: text, -1, answer, -1 - first token, and so on."""
    borders = np.flatnonzero(rows < 0).tolist()
    examples = []
    start = 0
    for text_end, answer_end in zip(borders[::2], borders[1::2], strict=True):
        text = rows[start:text_end]
        answer = rows[text_end + 1 : answer_end]
        examples.append(Example(text, answer, -1 - int(rows[answer_end])))
        start = answer_end + 1
    return examples
