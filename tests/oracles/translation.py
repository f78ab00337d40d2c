"""Translation in float64: a sentence at a time, a hypothesis at a time, every prefix read anew."""

from collections.abc import Callable
from itertools import product

import numpy as np

Next = Callable[[tuple[int, ...]], np.ndarray]
"""Log-probabilities of the token behind a target so far, float64 [V]."""
Found = tuple[tuple[int, ...], float]
"""Tokens of a translation without its end, and log p / length^α."""


def exhaustive(next_token: Next, vocabulary: int, eos: int, longest: int, alpha: float) -> Found:
    """The best of all targets that end within `longest` tokens, or are as long."""
    found = []
    for length in range(longest + 1):
        for target in product(
            [token for token in range(vocabulary) if token != eos], repeat=length
        ):
            whole = target if length == longest else (*target, eos)
            log_p = sum(next_token(whole[:i])[token] for i, token in enumerate(whole))
            found.append((target, log_p / len(whole) ** alpha))
    return max(found, key=lambda one: one[1])


def beam_search(
    next_token: Next, eos: int, longest: int, beam: int, alpha: float, never: tuple[int, ...] = ()
) -> Found:
    """The search of the design, steps 5 to 7, without the bound that stops it early."""
    live: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    finished: list[Found] = []
    for length in range(1, longest + 1):
        candidates = []
        for row, (target, log_p) in enumerate(live):
            scores = next_token(target).copy()
            scores[list(never)] = -np.inf
            candidates += [
                (-(log_p + score), row, token)
                for token, score in enumerate(scores)
                if score > -np.inf
            ]
        going = []
        for place, (nll, row, token) in enumerate(sorted(candidates)[: 2 * beam]):
            if token == eos and place < beam:
                finished.append((live[row][0], -nll / length**alpha))
            elif token != eos and len(going) < beam:
                going.append(((*live[row][0], token), -nll))
        if len(finished) >= beam:
            break
        live = going
        if length == longest:
            finished += [(target, log_p / length**alpha) for target, log_p in live]
    return max(finished, key=lambda one: one[1])
