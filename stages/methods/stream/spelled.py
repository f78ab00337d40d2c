"""Documents as text that a language model writes: text, question, `<ans>`, the answer or label's
tokens, `<eos>`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from stages.errors import ArtifactError, UsageError
from stages.examples.batching import padded
from stages.examples.documents import Documents, LabelledBatch
from stages.examples.examples import Batch
from stages.methods.method import Loss
from stages.models.head_settings import LanguageSettings
from stages.models.language_model import LanguageModel, evaluating


class Example(NamedTuple):
    """A text and its answer, both int64 [n], and the first token for writing the example."""

    text: np.ndarray
    answer: np.ndarray
    begin: int


@dataclass(kw_only=True)
class SpelledBatch(Batch):
    """Inputs begin with `<eos>`, as in answering; both formats have the same targets."""

    answered: Tensor
    """Targets that belong to an answer, `<eos>` included, bool [B, L]."""
    begins: Tensor
    """First input of the second format, which writes whole examples, int64 [B]."""

    @property
    def written(self) -> Tensor:
        """Inputs of the second format, int64 [B, L]."""
        return torch.cat((self.begins[:, None], self.inputs[:, 1:]), 1)


@dataclass(frozen=True)
class Spelling:
    """The tokens between text and answer, and the room for text in `length` inputs."""

    head: LanguageSettings
    eos: int
    length: int

    @classmethod
    def of(cls, head: LanguageSettings, examples: Documents) -> Self:
        """Spelling for examples of a model. Raises: UsageError if the longest label leaves no room
        for text.
        """
        spelling = cls(head, examples.eos, examples.cutting.context)
        if spelling.room < 1:
            raise UsageError(
                f"Of {spelling.length} tokens the longest label and two more leave no room for text: raise "
                "--segment-length."
            )
        return spelling

    @property
    def answer(self) -> int:
        """`<ans>`."""
        return self.head.first

    @property
    def any_task(self) -> int:
        """`<gen>`."""
        return self.head.first + 1

    @property
    def longest(self) -> int:
        """Maximum tokens of an answer; if each document has its own, at most half of the length."""
        longest = self.head.longest_answer
        return longest if self.head.answers else min(longest, self.length // 2)

    @property
    def room(self) -> int:
        """Maximum tokens of a text."""
        return self.length - 2 - self.longest

    def texts(self, batch: LabelledBatch) -> list[np.ndarray]:
        """The texts of documents, cut at the end, without `<eos>`; the question after each is not
        cut.
        """
        return batch.texts(self.room, self.eos)

    def examples(self, batch: LabelledBatch, begins: Sequence[int]) -> list[Example]:
        """Documents as examples; the answers are their labels or their own answers."""
        answers = batch.answers(self.head.answers, self.longest)
        parts = zip(self.texts(batch), answers, begins, strict=True)
        return [Example(text, answer, begin) for text, answer, begin in parts]

    def batch(self, examples: Sequence[Example]) -> SpelledBatch:
        """Examples as rows that are padded with `<eos>`.

        >>> spelling = Spelling(LanguageSettings(answers=((7,),), first=10), eos=0, length=8)
        >>> batch = spelling.batch([Example(np.array([3, 4]), np.array([7]), 11)])
        >>> batch.inputs.tolist(), batch.targets.tolist(), batch.written.tolist(), batch.answered.long().tolist()
        ([[0, 3, 4, 10, 7]], [[3, 4, 10, 7, 0]], [[11, 3, 4, 10, 7]], [[0, 0, 0, 1, 1]])
        """
        rows = []
        for example in examples:
            rows.append(np.concatenate((example.text, [self.answer], example.answer, [self.eos])))
        targets, mask = padded(rows, self.eos)

        # an input is the token before, the first of all `<eos>`
        first = np.full((len(rows), 1), self.eos)
        inputs = np.concatenate((first, targets[:, :-1]), 1)
        lengths = np.array([len(example.text) for example in examples])
        is_answer = mask & (np.arange(targets.shape[1]) > lengths[:, None])
        return SpelledBatch(
            inputs=torch.from_numpy(inputs),
            targets=torch.from_numpy(targets),
            places=np.zeros_like(targets),
            mask=torch.from_numpy(mask),
            answered=torch.from_numpy(is_answer),
            begins=torch.tensor([example.begin for example in examples]),
        )

    def parsed(self, tokens: np.ndarray, begin: int) -> Example | None:
        """The example in a written sequence, `<eos>` included; None if it is not a valid one.

        A valid one has text, a single `<ans>`, and an answer; no other token beyond those of the
        text occurs.
        """
        if not len(tokens) or tokens[-1] != self.eos:
            return None

        # tokens from `first` on are those of the head: `<ans>`, and the first ones of tasks
        special_places = np.flatnonzero(tokens >= self.head.first)
        if len(special_places) != 1:
            return None
        border = special_places[0]
        if tokens[border] != self.answer:
            return None

        text = tokens[:border]
        answer = tokens[border + 1 : -1]
        return Example(text, answer, begin) if len(text) and len(answer) else None


N = TypeVar("N", int, np.ndarray)


def task_token(head: LanguageSettings, number: N) -> N:
    """`<task>` of a task, or of several, by their numbers in the tokens."""
    return head.first + 2 + number


def answer_loss(model: LanguageModel, batch: SpelledBatch) -> Loss:
    """The mean of -log p of the tokens of answers, `<eos>` included."""
    encoding = model.read(batch)
    hidden = encoding.hidden[batch.answered]
    return Loss.of(model.loss(hidden, batch.targets[batch.answered]), encoding)


@torch.no_grad()
def write(
    model: LanguageModel,
    begins: np.ndarray,
    spelling: Spelling,
    top_k: int,
    random: np.random.Generator,
) -> list[np.ndarray]:
    """Sample a sequence from each first input [B], up to `<eos>` or the model's length: int64 [n]
    each.

    A token is drawn from the softmax over the `top_k` most probable ones.
    """
    device = next(model.parameters()).device
    num_rows = len(begins)
    rows = np.full((num_rows, spelling.length + 1), spelling.eos, np.int64)
    rows[:, 0] = begins
    ends = np.full(num_rows, spelling.length)

    # rows that have no `<eos>` yet
    open_rows = np.arange(num_rows)
    with evaluating(model):
        for place in range(1, spelling.length + 1):
            read = torch.from_numpy(rows[open_rows, :place]).to(device)
            hidden = model.encode(read).hidden[:, -1]
            scores = model.log_probs(hidden)
            best = scores.topk(min(top_k, scores.shape[1]))
            candidates = best.indices.cpu().numpy()  # [open rows, top_k]
            shares = best.values.double().softmax(1)
            cumulated = shares.cumsum(1).cpu().numpy()

            # a uniform number lies between two cumulated shares: that token is drawn; the last
            # share may be rounded below 1
            numbers = random.random((len(open_rows), 1))
            chosen = (numbers > cumulated).sum(1)
            chosen = chosen.clip(max=cumulated.shape[1] - 1)
            tokens = candidates[np.arange(len(open_rows)), chosen]
            rows[open_rows, place] = tokens

            is_ended = tokens == spelling.eos
            ends[open_rows[is_ended]] = place
            open_rows = open_rows[~is_ended]
            if not len(open_rows):
                break
    return [row[1 : end + 1] for row, end in zip(rows, ends.tolist(), strict=True)]


@torch.no_grad()
def answers(
    model: LanguageModel, texts: Sequence[np.ndarray], spelling: Spelling
) -> list[tuple[int, ...]]:
    """Answer each text by the most probable tokens, one after the other, up to `<eos>` or the
    longest answer.

    Raises: ArtifactError if the probability of a token is not a number.
    """
    longest = spelling.longest
    device = next(model.parameters()).device
    num_rows = len(texts)
    # before each text stands `<eos>`, and `<ans>` follows it
    lengths = np.array([len(text) + 2 for text in texts])
    rows = np.full((num_rows, int(lengths.max()) + longest), spelling.eos, np.int64)
    for row, text in zip(rows, texts, strict=True):
        row[1 : len(text) + 2] = [*text, spelling.answer]

    every_row = np.arange(num_rows)
    result = np.full((num_rows, longest + 1), spelling.eos)
    # a step more than the longest answer has, for its `<eos>`
    for step in range(longest + 1):
        ends = lengths + step
        read = torch.from_numpy(rows[:, : ends.max()]).to(device)
        hidden = model.encode(read).hidden
        last = hidden[torch.arange(num_rows), torch.from_numpy(ends - 1)]
        scores = model.log_probs(last)
        if scores.isnan().any():  # argmax would return the first NaN
            raise ArtifactError(
                "The model gives tokens no probability that is a number: train it again."
            )
        result[:, step] = scores.argmax(1).cpu().numpy()
        is_ended = (result[:, : step + 1] == spelling.eos).any(1)
        if is_ended.all():
            break
        if step < longest:
            rows[every_row, ends] = result[:, step]
    return [_up_to(spelling.eos, row) for row in result.tolist()]


def _up_to(eos: int, tokens: list[int]) -> tuple[int, ...]:
    """The tokens before the first `<eos>`, or all."""
    end = tokens.index(eos) if eos in tokens else len(tokens)
    return tuple(tokens[:end])
