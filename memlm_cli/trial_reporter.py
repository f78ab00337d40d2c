"""Messages of the stages of `memlm try`, in its words."""

import time
from collections.abc import Callable

from memlm_cli.console import ConsoleReporter
from stages.numbers import number

NOTABLY = 1.5
"""Factor between the speed of a training and that of its plan from which it is said."""
SOON = 20.0
"""Seconds of a training that tell its speed; a shorter one tells it at its end."""


class TrialReporter(ConsoleReporter):
    """Tells what a split that is small needs here, and once where a model is not trained as fast as was planned."""

    def __init__(
        self,
        name: str,
        planned: float | None,
        anew: str,
        larger: str | None,
        clock: Callable[[], float] = time.monotonic,
        *,
        side_by_side: bool = False,
    ) -> None:
        """For the stage `name`.

        Args:
            planned: tokens a second in training; None: of other models, of which none is known.
            anew: the command that plans anew.
            larger: what makes splits larger; None: what `tokenize` says does.
            clock: seconds.
            side_by_side: others tell at the same time.
        """
        super().__init__(name, clock, side_by_side=side_by_side)
        self._planned = planned if name.partition("[")[0] == "model" else None
        self._anew, self._larger = anew, larger
        self._trial_clock = clock
        self._began: float | None = None

    def warning(self, message: str) -> None:
        from stages.tokenization.size_warnings import MORE_TEXT

        super().warning(message if self._larger is None else message.replace(MORE_TEXT, self._larger))

    def progress(self, done: int, total: int, unit: str, **figures: float) -> None:
        super().progress(done, total, unit, **figures)
        now = self._trial_clock()
        self._began = now if self._began is None else self._began
        speed = figures.get("tokens_per_second")
        if self._planned and speed and (now - self._began >= SOON or done == total):
            line = pace_line(self._planned, speed, self._anew)
            self._planned = None
            if line is not None:
                self.info(line)


def pace_line(planned: float, measured: float, anew: str) -> str | None:
    """Message about a training at another speed than was planned, in tokens a second; None where it is about the same.

    >>> pace_line(2000, 2900, "memlm try a.txt --replan")
    >>> pace_line(2000, 4000, "memlm try a.txt --replan")
    'trained at 4,000 tokens a second, planned at 2,000: there is time for more; memlm try a.txt --replan plans anew'
    """
    if max(measured / planned, planned / measured) <= NOTABLY:
        return None
    means = "there is time for more" if measured > planned else "it takes longer than was planned"
    speeds = f"trained at {number(round(measured))} tokens a second, planned at {number(round(planned))}"
    return f"{speeds}: {means}; {anew} plans anew"
