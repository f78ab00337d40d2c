"""Numbers and quantities formatted for people."""

from collections.abc import Iterable, Sequence

SMALL = 0.0005
"""Probabilities below it are written in scientific notation."""


def number(value: float) -> str:
    """Integers with thousands separators, other numbers with 4 digits, huge ones in scientific
    notation.
    """
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.4g}"


def percent(share: float) -> str:
    """`12%`, `0.5%`."""
    return f"{100 * share:.3g}%"


def probability(value: float) -> str:
    """`0.7296`, `3.0e-06`, `0`."""
    if value == 0:
        return "0"
    return f"{value:.4f}" if value >= SMALL else f"{value:.1e}"


def tenths(share: float, sign: str = "") -> str:
    """A share in percent with one decimal, or two if one would show only zero; zero has no sign.

    Args:
        sign: `+` to also write the sign of positive numbers.

    >>> [tenths(share, "+") for share in (-0.016, 0.0123, -0.0004, -0.00004)]
    ['-1.6', '+1.2', '-0.04', '0.0']
    """
    for decimals in (1, 2):
        text = f"{100 * share:{sign}.{decimals}f}"
        if float(text):
            return text
    return "0.0"


def rate(done: float, seconds: float) -> float:
    """Amount per second; rounded to two digits for times below a second, which are unreliable.

    >>> rate(15_117, 3.118)
    4848.3
    >>> rate(15_117, 0.3024)
    50000.0
    """
    speed = done / seconds
    return round(speed, 1) if seconds >= 1 else float(f"{speed:.2g}")


def size(count: float) -> str:
    """Bytes: `552.5 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        decimals = 0 if unit == "B" else 1
        if round(count, decimals) < 1000:
            return f"{count:.{decimals}f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def duration(seconds: float) -> str:
    """`1:02:03` hours, minutes and seconds; `2:03` below an hour; `1.5 s` below a minute."""
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, seconds_left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds_left:02}" if hours else f"{minutes}:{seconds_left:02}"


def bucket_label(more_than: int | None, at_most: int | None) -> str:
    """A range of counts: `> 10,000`, `11-100`, `0`."""
    if at_most is None:
        return f"> {more_than:,}"
    return f"{at_most:,}" if more_than is None else f"{more_than + 1:,}-{at_most:,}"


def joined(parts: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def spread_out(values: Iterable[float]) -> bool:
    """Whether numbers need a logarithmic scale: all positive, and spanning more than a factor of
    10.
    """
    numbers = list(values)
    return bool(numbers) and min(numbers) > 0 and max(numbers) > 10 * min(numbers)


def figure_name(name: str) -> str:
    """The name of a figure for people.

    >>> figure_name("tokens_per_second"), figure_name("valid_loss")
    ('tokens/s', 'valid loss')
    """
    return name.replace("_per_second", "/s").replace("_", " ")


def passes(count: float) -> str:
    """Passes over a text, with one decimal: `0.5 passes`, `1 pass`, `7.9 passes`."""
    shown = number(round(count, 1)) if count >= 1 else f"{count:.2g}"
    return f"{shown} pass{'' if shown == '1' else 'es'}"
