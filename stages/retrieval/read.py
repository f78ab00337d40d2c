"""Memory read over arrays, without a store: scores of the past, the reading of entries, the best
numbers of a reading.

Shapes: n positions, k entries a position, d width of keys. Log-probabilities are natural.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from stages import arguments
from stages.errors import UsageError, did_you_mean, shortened
from stages.memory.entries import Entries
from stages.memory.readers import READERS
from stages.memory.readers import reader as readers
from stages.memory.recent import Recent, Similarity, recent_entries
from stages.metrics import perplexity as perplexity_of
from stages.retrieval.arrays import require_searchable
from stages.retrieval.grids import (
    TEMPERATURE_FRACTIONS,
    ReadingGrid,
    best_points,
    score_spread,
)
from stages.retrieval.scored_range import Retrieved, retrieve
from stages.retrieval.weights.grid import grid_nll


class Numbers(NamedTuple):
    """Numbers of a reading, as `read` takes them."""

    weight: float
    """λ of `interpolate`, α of `joint`."""
    temperature: float
    k: int


def recent(keys: Any, tokens: Any, size: int, similarity: Similarity = "dot") -> Entries:
    """The recent past of every position of a stream as its memory: that of a neural cache.

    Args:
        keys: float [n, d], the representation of each position.
        tokens: int [n], the token after each.
        size: maximum number of positions read back.
        similarity: of two keys q and k: `dot` q·k, `scaled-dot` q·k/sqrt(d), `l2` -‖q-k‖².
    Returns: entries [n, k], the nearest first; position 0 has none.
    Raises: UsageError naming what is wrong, and its row.

    >>> recent(torch.eye(3), torch.tensor([5, 7, 5]), size=2).values
    tensor([[-1, -1],
            [ 5, -1],
            [ 7,  5]])
    """
    vectors = arguments.floats(keys, "keys", "[n, d]")
    ids = arguments.tokens(tokens, "tokens")
    arguments.same_length({"keys": len(vectors), "tokens": len(ids)})
    arguments.require_positions(len(ids), "keys")
    require_searchable(vectors, "keys")
    size = arguments.count(size, "size")
    if similarity not in get_args(Similarity):
        raise UsageError(
            f"similarity is not {shortened(repr(similarity))}; "
            f"{did_you_mean(str(similarity), get_args(Similarity))}"
        )

    states = _tensor(keys, vectors)
    on_device = torch.from_numpy(ids).to(states.device)
    first = (torch.arange(len(ids), device=states.device) - size).clamp(min=0)
    return recent_entries(Recent(states, on_device, first, similarity, size))


def read(
    log_p: Any,
    entries: Entries,
    targets: Any,
    *,
    weight: float,
    temperature: float = 1.0,
    k: int | None = None,
    reader: str = "interpolate",
    log_z: Any = None,
) -> Tensor:
    """log p of the targets, float [n], with memory read on top of `log_p`; unchanged if a position
    reads nothing.

    Args:
        log_p: of the targets by the model alone, [n].
        entries: what each position reads.
        targets: the token that comes at each position, int [n].
        weight: λ, the weight of the memory, or α, added to its scores (`joint`).
        temperature: scores of entries are divided by it, above 0; infinite: all entries are alike.
        k: number of entries read, the first ones; None: all.
        reader: `interpolate`, a weighted mean, or `joint`, one softmax over the scores of both.
        log_z: log of the sum of exp of the vocabulary's scores, [n], which `joint` needs.
    Raises: UsageError naming what is wrong, and its row.

    The model gives the target 1/2, then 1/10. Two entries are equally near, and one of them holds
    it:

    >>> entries = Entries(torch.zeros(1, 2), torch.tensor([[5, 7]]))
    >>> read(torch.tensor([0.5]).log(), entries, torch.tensor([5]), weight=0.5).exp()
    tensor([0.5000])
    >>> read(torch.tensor([0.1]).log(), entries, torch.tensor([5]), weight=0.5).exp()  # 1/2 · 1/10 + 1/2 · 1/2
    tensor([0.3000])
    """
    positions = _positions(log_p, entries, targets, reader, log_z)
    (weight,) = _weights(reader, [weight])
    scale = 1 / arguments.positive(temperature, "temperature")
    cutoff = positions.width if k is None else arguments.count(k, "k")
    sums = positions.retrieved.log_sums([scale], [cutoff]).at(0, 0)
    return READERS.load(reader)().read(positions.log_p, positions.log_z, sums, weight)


def tune(
    log_p: Any,
    entries: Entries,
    targets: Any,
    *,
    weights: Sequence[float] = (),
    temperatures: Sequence[float] = (),
    k: Sequence[int] = (),
    reader: str = "interpolate",
    log_z: Any = None,
) -> Numbers:
    """The numbers of a reading with the smallest perplexity on these positions; do not report
    results on the same.

    Args:
        weights, temperatures, k: values to try. None given: the reader's grid of weights,
            temperatures around the spread of the scores, and all entries.
        others: as of `read`.
    Raises: UsageError naming what is wrong, and its row.
    """
    positions = _positions(log_p, entries, targets, reader, log_z)
    tried_weights = _weights(reader, weights)
    tried_temperatures = arguments.values_to_try(temperatures, "temperatures", arguments.positive)
    cutoffs = arguments.values_to_try(k, "k", arguments.count)
    if not tried_temperatures:
        spread = score_spread(positions.entries.scores, "dot")
        tried_temperatures = tuple(fraction * spread for fraction in TEMPERATURE_FRACTIONS)

    (weight,) = READERS.settings(reader).hyperparameters().values()
    grid = ReadingGrid(
        READERS.load(reader)(),
        tuple(1 / temperature for temperature in tried_temperatures),
        tuple(sorted({int(cutoff) for cutoff in cutoffs} or {positions.width})),
        tried_weights or weight.grid,
        off=weight.off,
        tries_off=not tried_weights,
    )
    nll = grid_nll(positions.log_p, positions.log_z, [positions.retrieved], [grid])
    (point,) = best_points(nll, [grid], [grid.cutoffs])
    return Numbers(point.weight, 1 / point.scale if point.scale else math.inf, point.cutoff)


def interpolate(log_p_lm: Any, log_p_mem: Any, lam: Any) -> Tensor:
    """Blend two distributions of the next token: p = (1 - λ) p_lm + λ p_mem.

    Args:
        log_p_lm: log-probabilities by the model, natural log; -inf is probability 0.
        log_p_mem: log-probabilities by the memory; the two shapes broadcast.
        lam: λ, weight of the memory, 0 <= λ < 1: a number, or an array that broadcasts.
    Returns: natural log, shape after broadcasting.
    Raises: UsageError naming what is wrong, and its row.
    Source: Khandelwal et al. 2020 (kNN-LM, arXiv:1911.00172), section 2.

    The model gives 1/2 to each of two tokens, the memory has only seen the first; λ = 1/4:

    >>> interpolate(np.log([0.5, 0.5]), np.log([1.0, 1e-9]), 0.25).exp().round(decimals=3)
    tensor([0.6250, 0.3750], dtype=torch.float64)
    """
    model = _distribution(log_p_lm, "log_p_lm")
    memory = _distribution(log_p_mem, "log_p_mem")
    weights = arguments.array(lam, "lam")
    if not ((weights >= 0) & (weights < 1)).all():
        raise UsageError(
            "lam: the weight of the memory is from 0 up to (without) 1, "
            f"not {shortened(repr(lam))}."
        )
    weight = _tensor(lam, weights)
    try:
        torch.broadcast_shapes(model.shape, memory.shape, weight.shape)
    except RuntimeError:
        raise UsageError(
            f"Shapes do not fit together: log_p_lm {[*model.shape]}, log_p_mem {[*memory.shape]}, "
            f"lam {[*weight.shape]}."
        ) from None
    return readers.interpolate(model, memory, weight)


def perplexity(log_p: Any) -> float:
    """exp of the mean negative log-probability; infinite if it is beyond the numbers of Python.

    Args:
        log_p: of tokens, natural log, [n], n >= 1.
    Raises: UsageError naming what is wrong, and its row.

    >>> round(perplexity(torch.tensor([0.5, 0.125]).log()), 6)  # the geometric mean is 1/4
    4.0
    """
    numbers = arguments.log_probabilities(log_p, "log_p")
    arguments.require_positions(len(numbers), "log_p")
    total = float(torch.from_numpy(numbers.astype(np.float64)).sum())
    return perplexity_of(-total, len(numbers)) or math.inf


class ReadingArguments(NamedTuple):
    """Checked arguments of a reading; n positions, on the device of the entries."""

    log_p: Tensor
    log_z: Tensor
    entries: Entries
    retrieved: Retrieved

    @property
    def width(self) -> int:
        """Number of entries of each position."""
        return self.entries.scores.shape[1]


def _positions(log_p: Any, entries: Any, targets: Any, reader: str, log_z: Any) -> ReadingArguments:
    """Arguments of a reading as tensors. Raises: UsageError naming what is wrong, and its row."""
    needs_log_z = READERS.settings(reader).needs_scores
    if needs_log_z and log_z is None:
        raise UsageError(
            f"The reader {reader!r} needs log_z, the logsumexp of the vocabulary's scores at each position."
        )
    checked_entries = _entries(entries)
    logs = arguments.log_probabilities(log_p, "log_p")
    ids = arguments.tokens(targets, "targets")
    lengths = {"log_p": len(logs), "entries": len(checked_entries.scores), "targets": len(ids)}
    sums = np.zeros_like(logs)
    if log_z is not None:
        sums = arguments.floats(log_z, "log_z", "[n]")
        arguments.require_finite(sums, "log_z")
        lengths["log_z"] = len(sums)
    arguments.same_length(lengths)
    arguments.require_positions(len(logs), "log_p")

    device = checked_entries.scores.device
    return ReadingArguments(
        _tensor(log_p, logs).float().to(device),
        _tensor(sums if log_z is None else log_z, sums).float().to(device),
        checked_entries,
        retrieve(checked_entries, torch.from_numpy(ids).to(device)),
    )


def _entries(entries: Any) -> Entries:
    """Entries whose arrays are tensors. Raises: UsageError for numbers that no entry can have."""
    if not isinstance(entries, Entries):
        raise UsageError(
            f"entries are memlm.Entries, as index.entries gives them, not {type(entries).__name__}."
        )
    scores = arguments.floats(entries.scores, "scores of entries", "[n, k]")
    values = arguments.array(entries.values, "values of entries", "[n, k]")
    if values.dtype.kind == "f" or values.shape != scores.shape or not scores.shape[1]:
        raise UsageError(
            f"values of entries are ids of tokens, one for each score {[*scores.shape]}, at least one for a "
            f"position; they are {values.dtype} {[*values.shape]}."
        )
    # A missing entry has the score -inf.
    arguments.require_finite(np.where(np.isneginf(scores), 0, scores), "scores of entries")
    checked = {
        "scores": _tensor(entries.scores, scores),
        "values": _tensor(entries.values, values),
    }
    if entries.counts is not None:
        counts = arguments.floats(entries.counts, "counts of entries", "[n, k]")
        arguments.require_finite(counts, "counts of entries")
        checked["counts"] = _tensor(entries.counts, counts)
    if entries.min_entries is not None:
        min_entries = arguments.array(entries.min_entries, "min_entries of entries", "[n]")
        checked["min_entries"] = _tensor(entries.min_entries, min_entries)
    return Entries(**checked)


def _weights(reader: str, weights: Sequence[float]) -> tuple[float, ...]:
    """Weights of a memory, in the order given. Raises: UsageError for one that is not legal."""
    numbers = arguments.values_to_try(weights, "weights", arguments.real)
    settings = READERS.settings(reader)
    (name,) = settings.hyperparameters()
    for number in numbers:
        try:
            settings.model_validate({name: (number,)})
        except ValidationError as error:
            # The first complaint is about the number; the others, about what else the key may be.
            reason = error.errors()[0]["msg"]
            raise UsageError(
                f"weight, the {name} of {reader!r}: {reason[:1].lower()}{reason[1:]}, not {number:g}."
            ) from None
    return numbers


def _distribution(log_p: Any, name: str) -> Tensor:
    """Log-probabilities of any shape; -inf is one. Raises: UsageError naming the first that is none."""
    numbers = arguments.array(log_p, name)
    arguments.require_finite(np.where(np.isneginf(numbers), 0, numbers), name)
    arguments.require_logs(numbers, name)
    tensor = _tensor(log_p, numbers)
    # λ takes the type of the logarithms, and as an integer it would be 0.
    return tensor if tensor.is_floating_point() else tensor.double()


def _tensor(values: Any, checked: np.ndarray) -> Tensor:
    """The caller's own tensor, on its device and with its graph; an array as a tensor."""
    if isinstance(values, Tensor):
        return values
    # torch warns of memory that it may not write, such as a file opened for reading.
    return torch.from_numpy(checked if checked.flags.writeable else checked.copy())
