"""Work that goes on beside its caller, one call at a time."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Background:
    """A thread that does one call at a time while its caller goes on; what goes wrong is raised at the next step."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._call: Future[None] | None = None

    def run(self, call: Callable[[], None]) -> None:
        """Begin a call, once the one before it has ended. Raises what went wrong with that."""
        self.flush()
        self._call = self._thread.submit(call)

    def flush(self) -> None:
        """Wait for the call under way. Raises what went wrong with it."""
        if self._call is not None:
            call, self._call = self._call, None
            call.result()

    def close(self) -> None:
        """Finish the call under way and stop."""
        try:
            self.flush()
        finally:
            self._thread.shutdown()
