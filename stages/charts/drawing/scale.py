"""From numbers to places on an axis, and the numbers that stand beside it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True)
class Scale:
    """Maps `low` to the place `start` and `high` to `stop`; a logarithmic scale takes numbers above `-shift`."""

    low: float
    high: float
    start: float
    stop: float
    logarithmic: bool = False
    shift: float = 0.0
    """Added before the logarithm, so that 0 has a place beside numbers that reach far."""

    def __call__(self, value: float) -> float:
        low, high, value = (self._spread(v) for v in (self.low, self.high, value))
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.stop - self.start)

    def _spread(self, value: float) -> float:
        return math.log(value + self.shift) if self.logarithmic else value

    def ticks(self, most: int) -> list[float]:
        """Round numbers within the scale, `most` at the most."""
        found = _log_ticks(self.low, self.high, most) if self.logarithmic else []
        return found if len(found) > 1 else _even_ticks(self.low, self.high, most)


def scale_over(
    values: Iterable[float], start: float, stop: float, *, logarithmic: bool = False, rounded: bool = True
) -> Scale:
    """A scale that holds all values; `rounded`: with a little room at both ends.

    Args:
        values: finite numbers, one at least; positive where the scale is logarithmic.
        start: place of the smallest.
        stop: place of the largest.
    """
    held = list(values)
    low, high = min(held), max(held)
    if logarithmic:
        room = (high / low) ** 0.05 if high > low else 1.5
        return Scale(low / room, high * room, start, stop, True) if rounded else Scale(low, high, start, stop, True)
    room = 0.05 * (high - low) or abs(high) * 0.1 or 1.0
    return Scale(low - room, high + room, start, stop) if rounded else Scale(low, high, start, stop)


def _even_ticks(low: float, high: float, most: int) -> list[float]:
    if not high > low:
        return [low]
    rough = (high - low) / max(most - 1, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    for step in (power * factor for factor in STEPS):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < most:
            return [float(f"{number * step:.12g}") for number in range(first, last + 1)]
    return [low, high]


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    """Numbers that begin with 1, 2 or 5, or with 1 alone, or those of every second power, …"""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for heads, every in (((1, 2, 5), 1), ((1, 3), 1), ((1,), 1), ((1,), 2), ((1,), 3), ((1,), 6)):
        ticks = [head * 10.0**power for power in powers if power % every == 0 for head in heads]
        inside = [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if len(inside) <= most:
            return inside
    return [low, high]
