"""Readings over arrays: NumPy and torch alike, and refusals that name the argument and its row."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from stages.errors import UsageError
from stages.memory.entries import Entries
from stages.retrieval.read import interpolate, perplexity, read, recent, tune

KEYS = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
TOKENS = np.array([5, 7, 5, 5, 7, 5])
LOG_P = [-1.0, -2.0, -3.0, -1.0, -2.0, -3.0]
ENTRIES = recent(KEYS, TOKENS, 3)


def entries_of(scores: np.ndarray, values: np.ndarray) -> Entries:
    """Entries as a user may make them: outside the tests, nothing compares types with shapes."""
    entries = object.__new__(Entries)
    vars(entries).update(scores=scores, values=values, least=None, counts=None)
    return entries


JOINT = {"reader": "joint", "log_z": [1.0] * 6}


@pytest.mark.parametrize("form", [list, np.array, torch.tensor])
def test_lists_arrays_and_tensors_are_read_alike(form: Callable) -> None:
    expected = read(torch.tensor(LOG_P), ENTRIES, torch.tensor(TOKENS), weight=0.3)
    targets = form(TOKENS.tolist())
    result = read(form(LOG_P), ENTRIES, targets, weight=0.3)
    assert torch.equal(result, expected)
    arrays = entries_of(ENTRIES.scores.numpy(), ENTRIES.values.numpy())
    assert torch.equal(read(form(LOG_P), arrays, targets, weight=0.3), expected)
    assert tune(form(LOG_P), arrays, targets) == tune(torch.tensor(LOG_P), ENTRIES, TOKENS)
    assert perplexity(form(LOG_P)) == pytest.approx(math.exp(2))


def test_small_types_of_ids_and_of_logarithms_are_read() -> None:
    expected = read(LOG_P, ENTRIES, TOKENS, weight=0.3)
    for targets in (TOKENS.astype(np.uint16), torch.tensor(TOKENS).to(torch.uint8)):
        assert torch.equal(read(LOG_P, ENTRIES, targets, weight=0.3), expected)
    assert torch.equal(recent(KEYS, torch.tensor(TOKENS).to(torch.uint8), 3).values, ENTRIES.values)
    half = torch.tensor(LOG_P).bfloat16()
    assert torch.equal(read(half, ENTRIES, TOKENS, weight=0.3), expected)
    assert recent(torch.tensor(KEYS).bfloat16(), TOKENS, 3).scores.dtype == torch.float32


def test_a_gradient_passes_through_a_reading() -> None:
    log_p = torch.tensor(LOG_P, requires_grad=True)
    read(log_p, ENTRIES, TOKENS, weight=0.3).sum().backward()
    assert log_p.grad is not None and log_p.grad[0] == 1  # position 0 reads nothing


NAN = [*LOG_P[:3], math.nan, *LOG_P[4:]]
BAD = [
    (NAN, TOKENS, {}, "log_p: row 3 holds nan, which is no finite number"),
    ([*LOG_P[:5], -math.inf], TOKENS, {}, "log_p: row 5 holds -inf"),
    (
        [-1.0, 0.25, *LOG_P[2:]],
        TOKENS,
        {},
        "log_p: row 1 holds 0.25, and a log-probability is 0 or",
    ),
    (LOG_P[:5], TOKENS, {}, "their lengths differ: log_p 5, entries 6, targets 6"),
    ([-1.0], TOKENS, {}, "their lengths differ: log_p 1, entries 6, targets 6"),
    (LOG_P, TOKENS[:5], {}, "their lengths differ: log_p 6, entries 6, targets 5"),
    (LOG_P, TOKENS - 6, {}, "targets: row 0 holds -1, and ids are from 0"),
    (LOG_P, TOKENS * 1.0, {}, "targets are whole numbers, ids of tokens, not float64"),
    ([LOG_P], TOKENS, {}, r"log_p are \[n\], not \[1, 6\]"),
    (LOG_P, TOKENS, {"reader": "joint"}, "reader 'joint' needs log_z"),
    (LOG_P, TOKENS, {**JOINT, "log_z": NAN}, "log_z: row 3 holds nan"),
    (LOG_P, TOKENS, {"reader": "jont"}, "no memory reader 'jont'; did you mean 'joint'"),
]


@pytest.mark.parametrize(("log_p", "targets", "options", "message"), BAD)
def test_what_is_read_is_checked(log_p: Any, targets: Any, options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(log_p, ENTRIES, targets, **{"weight": 0.3, **options})
    with pytest.raises(UsageError, match=message):
        tune(log_p, ENTRIES, targets, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0}, "temperature is a number above 0, not 0"),
        ({"temperature": -1.0}, "temperature is a number above 0, not -1"),
        ({"temperature": math.nan}, "temperature is a number, not nan"),
        ({"temperature": "2"}, "temperature is a number, not '2'"),
        ({"weight": 1}, "weight, the lambda of 'interpolate': input should be less than 1, not 1"),
        ({"weight": -0.1}, "weight, the lambda of 'interpolate'"),
        ({"weight": math.nan}, "each of weights is a number, not nan"),
        ({"k": 0}, "k is a whole number, 1 or more, not 0"),
        ({"k": 2.5}, "k is a whole number"),
    ],
)
def test_numbers_of_a_reading_are_legal(options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(LOG_P, ENTRIES, TOKENS, **{"weight": 0.3, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperatures": [1, 0]}, "each of temperatures is a number above 0, not 0"),
        ({"weights": [0.1, 2]}, "weight, the lambda of 'interpolate': .*, not 2"),
        ({"k": 3}, "k is a list of numbers, not 3"),
        ({"k": [3, -1]}, "each of k is a whole number, 1 or more, not -1"),
    ],
)
def test_numbers_to_try_are_legal(options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tune(LOG_P, ENTRIES, TOKENS, **options)


def test_numbers_to_try_may_be_arrays() -> None:
    tried = {"weights": np.array([0.1, 0.3]), "k": torch.tensor([1, 3])}
    assert tune(LOG_P, ENTRIES, TOKENS, **tried).weight in (0.1, 0.3)  # type: ignore[arg-type]


def test_no_positions_are_refused() -> None:
    with pytest.raises(UsageError, match="log_p: there are no positions"):
        tune([], ENTRIES[:0], np.zeros(0, np.int64))
    with pytest.raises(UsageError, match="log_p: there are no positions"):
        read([], ENTRIES[:0], [], weight=0.3)


@pytest.mark.parametrize(
    ("scores", "values", "message"),
    [
        ([[math.nan]], [[5]], "scores of entries: row 0 holds nan"),
        ([[math.inf]], [[5]], "scores of entries: row 0 holds inf"),
        ([[0.0, 1.0]], [[5]], "values of entries are ids of tokens, one for each score"),
        ([[0.0]], [[5.0]], "values of entries are ids of tokens"),
        ([0.0], [5], r"scores of entries are \[n, k\], not \[1\]"),
    ],
)
def test_entries_are_checked(scores: list, values: list, message: str) -> None:
    entries = entries_of(np.array(scores), np.array(values))
    with pytest.raises(UsageError, match=message):
        read([-1.0], entries, [5], weight=0.3)


def test_entries_are_memlms_own() -> None:
    with pytest.raises(UsageError, match=r"entries are memlm\.Entries, .* not tuple"):
        read([-1.0], (KEYS, TOKENS), [5], weight=0.3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((KEYS * np.nan, TOKENS, 3), "keys: row 0 holds nan"),
        ((TOKENS[:, None], TOKENS, 3), "keys are floats, not int64"),
        ((KEYS, TOKENS[:5], 3), "their lengths differ: keys 6, tokens 5"),
        ((KEYS, TOKENS, 0), "size is a whole number, 1 or more, not 0"),
        ((KEYS[:0], TOKENS[:0], 3), "keys: there are no positions"),
        ((KEYS, TOKENS, 3, "cos"), "similarity is not 'cos'; known: dot, l2, scaled-dot"),
    ],
)
def test_a_stream_is_checked(arguments: tuple, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        recent(*arguments)


@pytest.mark.parametrize(
    ("log_p", "message"),
    [
        ([], "log_p: there are no positions"),
        ([0.1, 0.2], "log_p: row 0 holds 0.1, and a log-probability is 0 or less"),
        ([-1.0, math.nan], "log_p: row 1 holds nan"),
        ([[-1.0]], r"log_p are \[n\], not \[1, 1\]"),
    ],
)
def test_a_perplexity_is_of_log_probabilities(log_p: list, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        perplexity(log_p)


def test_a_perplexity_may_be_infinite() -> None:
    assert perplexity([-800.0]) == math.inf


def test_integers_are_blended_as_they_are() -> None:
    """With the weight as an integer, 0, the memory was off."""
    result = interpolate(np.array([-2]), np.array([-1]), 0.5)
    assert float(result) == pytest.approx(math.log(0.5 * math.exp(-2) + 0.5 * math.exp(-1)))


@pytest.mark.parametrize(
    ("log_p_lm", "log_p_mem", "lam", "message"),
    [
        ([math.nan], [-1.0], 0.3, "log_p_lm: row 0 holds nan"),
        ([-1.0], [-1.0, 0.5], 0.3, "log_p_mem: row 1 holds 0.5, and a log-probability"),
        ([-1.0], [-1.0], 1.0, "lam: the weight of the memory is from 0 up to"),
        ([-1.0], [-1.0], math.nan, "lam: the weight of the memory"),
        (
            [-1.0] * 3,
            [-1.0] * 2,
            0.3,
            r"Shapes do not fit together: log_p_lm \[3\], log_p_mem \[2\]",
        ),
    ],
)
def test_what_is_blended_is_checked(log_p_lm: Any, log_p_mem: Any, lam: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        interpolate(log_p_lm, log_p_mem, lam)
