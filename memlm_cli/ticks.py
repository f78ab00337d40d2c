"""A clock beside the work, so that what is shown of it moves while nothing is reported."""

from collections.abc import Callable
from threading import Event, Thread

SECONDS_BETWEEN_TICKS = 1.0


class Ticks:
    """Calls `tick` every second, in a thread of its own, from `start` to `stop`."""

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._stopped = Event()

    def start(self) -> None:
        Thread(target=self._run, name="ticks", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(SECONDS_BETWEEN_TICKS):
            try:
                self._tick()
            except (OSError, ValueError):  # nobody reads any more
                return
