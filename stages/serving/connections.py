"""Connections of clients: those that send nothing, or read nothing, are closed."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from stages.serving.settings import HEAD_SECONDS

LOOK_SECONDS = 5.0
"""Time between two looks at a connection."""


class WatchedConnection(H11Protocol):
    """Closes a connection whose next request does not arrive in time.

    The server itself bounds only the time between two requests, not that of the first head.
    """

    _watch: asyncio.TimerHandle | None = None
    _idle = 0.0
    """Seconds without a request under way."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._look_later()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def _look_later(self) -> None:
        self._watch = self.loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        if self.transport.is_closing():
            # What a client does not read would keep the connection open for ever.
            self.transport.abort()
            return
        busy = self.cycle is not None and not self.cycle.response_complete
        self._idle = 0.0 if busy else self._idle + LOOK_SECONDS
        if self._idle >= HEAD_SECONDS:
            self.transport.abort()
            return
        self._look_later()
