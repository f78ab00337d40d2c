"""Made tasks, whose chance level is known, for mechanisms of layers; and as much of a training loop as they need."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stages.methods.method import ParameterGroup
from stages.models.config import BackboneConfig
from stages.models.language_model import LanguageModel
from stages.training.config import OptimizerConfig, ScheduleConfig
from stages.training.groups import set_apart
from stages.training.optimizer import make_optimizer, set_learning_rates
from stages.training.schedule import learning_rate_factor


class Task(NamedTuple):
    """Rows of tokens int64 [B, T], each a stream; bool [B, T], the tokens that are asked for."""

    tokens: Tensor
    asked: Tensor


def facts(number: int, types: int, seed: int) -> Task:
    """Rows `a b c`, c a fixed random token for each of `number` different pairs; asked is c. Chance: 1 / types."""
    random = torch.Generator().manual_seed(seed)
    pairs = torch.randperm(types * types, generator=random)[:number]
    answers = torch.randint(types, (number,), generator=random)
    rows = torch.stack((pairs // types, pairs % types, answers), 1)
    return Task(rows, torch.tensor([False, False, True]).expand(number, 3))


def beginnings(rows: int, types: int, length: int, segment: int, seed: int) -> Task:
    """Documents whose first segment holds one token of `types`, among others, as often as not; asked is which.

    All else are random tokens of as many other types. The question `? a` stands in the last segment. Chance: 1 / types.
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


EVERY = 8
"""A token of so many is a question in `look_up`, with its answer as the next."""


def look_up(rows: int, keys: int, values: int, length: int, seed: int) -> tuple[Task, Tensor]:
    """Documents in which a token says `a:b`, b a document's own, and `?a` now and then; asked is the `a:b` after it.

    Each key a is stated once, in the first half, among other tokens of no meaning; asked are keys that were stated,
    each as likely. An answer states its pair again, so one step of attention finds it. Chance: 1 / values.

    Returns:
        The task, and int64 [B, T]: how many tokens before an answer its pair was stated last; 0 where none is asked.
    """
    random = np.random.default_rng(seed)
    question, other = keys * values, keys * values + keys
    tokens = random.integers(other, other + values, (rows, length))
    back = np.zeros((rows, length), np.int64)
    places = np.array([place for place in range(length // 2) if place % EVERY not in (0, 1)])
    for row in range(rows):
        stated = np.sort(random.choice(places, keys, replace=False))
        pairs = random.permutation(keys) * values + random.integers(values, size=keys)
        tokens[row, stated], last = pairs, stated.copy()
        for place in range(int(stated[0]) // EVERY * EVERY + EVERY, length - 1, EVERY):
            which = random.integers(int(np.searchsorted(stated, place)))
            tokens[row, place : place + 2] = question + pairs[which] // values, pairs[which]
            back[row, place + 1], last[which] = place + 1 - last[which], place + 1
    distances = torch.from_numpy(back)
    return Task(torch.from_numpy(tokens), distances > 0), distances


QUESTIONS = 2
"""At the end of each segment of `commoner`, of four tokens each."""


def commoner(rows: int, types: int, length: int, segment: int, seed: int) -> Task:
    """Streams of tokens whose frequencies shift, and `? a b c` now and then: c is the one of a and b that was commoner.

    Tokens are drawn from (1 - t) p_0 + t p_1, t from 0 to 1 along the stream; the types' weights in p_0 and p_1 are a
    row's own, of a Dirichlet distribution (0.5). Each segment ends with questions, asked is c; counted are the tokens
    that are no part of questions, from the beginning of the stream. Chance: 1/2.

    Source: a small form of the sorting task of Martins et al. 2022 (∞-former, arXiv:2109.00301), section 4.1.
    """
    random = np.random.default_rng(seed)
    tokens, asked = np.empty((rows, length), np.int64), np.zeros((rows, length), bool)
    own = segment - 4 * QUESTIONS
    for row in range(rows):
        first, last = random.dirichlet(np.full(types, 0.5), 2)
        counts = np.zeros(types, np.int64)
        for start in range(0, length, segment):
            t = (start + np.arange(own)[:, None]) / length
            ends = ((1 - t) * first + t * last).cumsum(1)
            drawn = (random.random((own, 1)) * ends[:, -1:] > ends).sum(1)
            counts += np.bincount(drawn, minlength=types)
            tokens[row, start : start + own] = drawn
            for place in range(start + own, start + segment, 4):
                a, b = _of_other_counts(counts, random)
                tokens[row, place : place + 4] = types, a, b, a if counts[a] > counts[b] else b
                asked[row, place + 3] = True
    return Task(torch.from_numpy(tokens), torch.from_numpy(asked))


def _of_other_counts(counts: np.ndarray, random: np.random.Generator) -> tuple[int, int]:
    """Two types, one of them commoner than the other."""
    while True:
        a, b = random.choice(len(counts), 2, replace=False).tolist()
        if counts[a] != counts[b]:
            return a, b


def counting(task: Task, types: int, last: int) -> Tensor:
    """How often the answer of `commoner` is right that counts the last so many tokens: of each that is asked for.

    Where they are equally common it is right for one half.
    """
    right = []
    for row, asked in zip(task.tokens, task.asked, strict=True):
        of_question = torch.zeros_like(asked)
        for place in asked.nonzero()[:, 0].tolist():
            of_question[place - 3 : place + 1] = True
        for place in asked.nonzero()[:, 0].tolist():
            seen = slice(max(0, place - last), place)
            counts = torch.bincount(row[seen][~of_question[seen]], minlength=types)
            a, b = row[place - 2 : place].tolist()
            other = b if int(row[place]) == a else a
            difference = int(counts[row[place]] - counts[other])
            right.append(0.5 if difference == 0 else float(difference > 0))
    return torch.tensor(right)


def sorting(rows: int, types: int, length: int, seed: int) -> Task:
    """Documents of tokens whose frequencies shift, a separator, and all types, the commonest first; asked are these.

    `length` tokens are drawn from (1 - t) p_0 + t p_1, t from 0 to 1 along the document; the types' weights in p_0 and
    p_1 are a row's own, integers from 1 to 9. Of equally common types the smaller comes first. Who guesses among the
    types that are left is right for (1 + 1/2 + … 1/types) / types.

    Source: Martins et al. 2022 (∞-former, arXiv:2109.00301), section 4.1.
    """
    random = np.random.default_rng(seed)
    tokens = np.empty((rows, length + 1 + types), np.int64)
    t = np.arange(length)[:, None] / max(1, length - 1)
    for row in tokens:
        first, last = (weights / weights.sum() for weights in random.integers(1, 10, (2, types)))
        ends = ((1 - t) * first + t * last).cumsum(1)
        row[:length] = (random.random((length, 1)) * ends[:, -1:] > ends).sum(1)
        row[length] = types
        row[length + 1 :] = np.argsort(-np.bincount(row[:length], minlength=types), kind="stable")
    asked = torch.zeros(tokens.shape, dtype=torch.bool)
    asked[:, length + 1 :] = True
    return Task(torch.from_numpy(tokens), asked)


def sorted_by_counting(task: Task, types: int, last: int) -> Tensor:
    """Whether the answer of `sorting` is right that counts the last so many tokens, of those not named yet."""
    length = task.tokens.shape[1] - types - 1
    answers = task.tokens[:, length + 1 :]
    counts = torch.stack([row.bincount(minlength=types) for row in task.tokens[:, max(0, length - last) : length]])
    right = []
    for place in range(types):
        right.append(counts.argmax(1) == answers[:, place])
        counts.scatter_(1, answers[:, place : place + 1], -1)
    return torch.stack(right, 1).flatten()


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
    seed: int = 0,
    begun: Mapping[str, Tensor] | None = None,
) -> LanguageModel:
    """A model that has learnt what is asked for, by cosine-scheduled Adam.

    Args:
        segment: rows are read as streams, an update a segment of so many inputs; None: whole.
        seed: of the weights that it begins with.
        begun: trained weights, by name, that it begins with instead; those of a name that is not here begin as new.
    """
    torch.manual_seed(seed)
    model = LanguageModel(config)
    assert not model.load_state_dict(begun or {}, strict=False).unexpected_keys
    optimizer = make_optimizer(OptimizerConfig(lr=lr), set_apart([ParameterGroup(list(model.parameters()))], model))
    schedule, step = ScheduleConfig(warmup=updates // 20, final=0.05), 0
    while step < updates:
        task, state = next(batches), None
        for inputs, targets, asked in _segments(task, segment):
            set_learning_rates(optimizer, lr * learning_rate_factor(min(step + 1, updates), updates, schedule))
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


def accuracy(model: LanguageModel, task: Task, where: Tensor | None = None) -> float:
    """Share of what is asked for, or of these tokens, of which the likeliest token is right."""
    asked = (task.asked if where is None else where)[:, 1:]
    with torch.no_grad():
        hidden = model.encode(task.tokens[:, :-1]).hidden[asked]
        return float((model.log_probs(hidden).argmax(-1) == task.tokens[:, 1:][asked]).float().mean())


def _segments(task: Task, segment: int | None) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Inputs, targets and which of these are asked for, segment by segment."""
    parts = (task.tokens[:, :-1], task.tokens[:, 1:], task.asked[:, 1:])
    return zip(*(part.split(segment or part.shape[1], 1) for part in parts), strict=True)
