"""Made tasks for tests of seconds: what is asked alone is learned, in a loop of a few lines.

They show that a mechanism can work, not what `memlm train` makes of it: see
`tests.benchmarks.bench_made_tasks`.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from stages.methods.method import ParameterGroup
from stages.models.config import BackboneConfig
from stages.models.language_model import LanguageModel
from stages.training.config import OptimizerConfig, ScheduleConfig
from stages.training.optimizer import (
    learning_rate_factor,
    make_optimizer,
    set_learning_rates,
    split_groups,
)


class Task(NamedTuple):
    """Rows of tokens int64 [B, T], each a stream; bool [B, T], the tokens that are asked for."""

    tokens: Tensor
    asked: Tensor


def facts(number: int, types: int, seed: int) -> Task:
    """Rows `a b c`, c a fixed random token for each of `number` different pairs; asked is c.
    Chance: 1 / types.
    """
    random = torch.Generator().manual_seed(seed)
    pairs = torch.randperm(types * types, generator=random)[:number]
    answers = torch.randint(types, (number,), generator=random)
    rows = torch.stack((pairs // types, pairs % types, answers), 1)
    return Task(rows, torch.tensor([False, False, True]).expand(number, 3))


def beginnings(rows: int, types: int, length: int, segment: int, seed: int) -> Task:
    """Documents whose first segment holds one token of `types`, among others, as often as not;
    asked is which.

    All else are random tokens of as many other types. The question `? a` stands in the last
    segment. Chance: 1 / types.
    """
    random = torch.Generator().manual_seed(seed)
    tokens = types + torch.randint(types, (rows, length), generator=random)
    said = torch.randint(types, (rows, 1), generator=random)
    where = torch.rand(rows, segment, generator=random) < 0.5
    tokens[:, :segment] = torch.where(where, said, tokens[:, :segment])
    tokens[:, -2], tokens[:, -1] = 2 * types, said[:, 0]
    asked = torch.zeros(rows, length, dtype=torch.bool)
    asked[:, -1] = True
    return Task(tokens, asked)


def batches_of(task: Task, size: int, seed: int) -> Iterator[Task]:
    """Passes over the rows of a task, in random order."""
    random = torch.Generator().manual_seed(seed)
    while True:
        for rows in torch.randperm(len(task.tokens), generator=random).split(size):
            yield Task(task.tokens[rows], task.asked[rows])


def learned(
    config: BackboneConfig,
    batches: Iterator[Task],
    updates: int,
    lr: float,
    segment: int | None = None,
) -> LanguageModel:
    """A model that has learnt what is asked for, by cosine-scheduled Adam.

    Args:
        segment: rows are read as streams, an update a segment of so many inputs; None: whole.
    """
    torch.manual_seed(0)
    model = LanguageModel(config)
    optimizer = make_optimizer(
        OptimizerConfig(lr=lr), split_groups([ParameterGroup(list(model.parameters()))], model)
    )
    schedule, step = ScheduleConfig(warmup=updates // 20, final=0.05), 0
    while step < updates:
        task, state = next(batches), None
        for inputs, targets, asked in _segments(task, segment):
            set_learning_rates(
                optimizer, lr * learning_rate_factor(min(step + 1, updates), updates, schedule)
            )
            with torch.set_grad_enabled(bool(asked.any())):
                encoding = model.encode(inputs, state)
            state = encoding.state
            step += 1
            if not asked.any():
                continue
            loss = model.loss(encoding.hidden[asked], targets[asked])
            if encoding.auxiliary_loss is not None:
                loss = loss + encoding.auxiliary_loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


def accuracy(model: LanguageModel, task: Task) -> float:
    """Share of what is asked for of which the likeliest token is right."""
    asked = task.asked[:, 1:]
    with torch.no_grad():
        hidden = model.encode(task.tokens[:, :-1]).hidden[asked]
        return float(
            (model.log_probs(hidden).argmax(-1) == task.tokens[:, 1:][asked]).float().mean()
        )


def _segments(task: Task, segment: int | None) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Inputs, targets and which of these are asked for, segment by segment."""
    parts = (task.tokens[:, :-1], task.tokens[:, 1:], task.asked[:, 1:])
    return zip(*(part.split(segment or part.shape[1], 1) for part in parts), strict=True)
