"""A completion as a stream of server-sent events."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from stages.serving.answers import Answer, Usage, event
from stages.serving.completing import Piece
from stages.serving.refusal import INTERNAL

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
]
DONE = event("[DONE]")


class EventStream(Response):
    """An event for each piece; then the usage, if it is wanted, and the end."""

    def __init__(self, pieces: AsyncGenerator[Piece], answer: Answer, *, usage: bool) -> None:
        self._pieces = pieces
        self._answer = answer
        self._with_usage = usage

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        async with aclosing(self._pieces):
            try:
                async for content in self._events():
                    await send({"type": "http.response.body", "body": content, "more_body": True})
            except ClientDisconnect:
                raise
            except Exception:
                # The status is sent already: the client learns of the error by an event.
                await send({"type": "http.response.body", "body": event(INTERNAL.body)})
                raise
        await send({"type": "http.response.body", "body": DONE})

    async def _events(self) -> AsyncGenerator[bytes]:
        usage = Usage()
        async for piece in self._pieces:
            usage.count(piece)
            for content in self._answer.events(piece):
                yield event(content)
        if self._with_usage:
            yield event(self._answer.last_event(usage))
