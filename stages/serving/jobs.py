"""Requests as tasks of the worker: results cross from its thread to the loop of the server."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from typing import Any

from starlette.requests import ClientDisconnect, Request

from stages.serving.worker import Ended, Steps, Worker


class Job:
    """A task of the worker that a request waits for.

    It ends before its next step when the client goes away, or when `close` is called.
    """

    def __init__(self, worker: Worker, request: Request, strands: Iterable[Steps]) -> None:
        """Raises: Refusal if too many tasks wait."""
        self._results = asyncio.Queue[Any]()
        self._loop = asyncio.get_running_loop()
        self._task = worker.submit(strands, self._deliver)
        self._watch = asyncio.create_task(self._await_disconnect(request))

    def _deliver(self, result: Any) -> None:
        """Pass a result on; called in the thread of the worker."""
        # The loop is closed while the server stops.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._results.put_nowait, result)

    async def _await_disconnect(self, request: Request) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self._results.put_nowait(Ended(ClientDisconnect()))

    async def results(self) -> AsyncGenerator[Any]:
        """The results in their order. Raises: the error that ended the task, or ClientDisconnect."""
        while not isinstance(result := await self._results.get(), Ended):
            yield result
        if result.error is not None:
            raise result.error

    def close(self) -> None:
        """Give up what is left of the task."""
        self._task.cancel()
        self._watch.cancel()
