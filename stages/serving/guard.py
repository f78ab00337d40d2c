"""The outermost layer of an address: who may ask, how long an answer may take, what errors say."""

import asyncio
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stages.serving.access import Access, Header
from stages.serving.measures import Measures
from stages.serving.refusal import INTERNAL, Refusal

OPEN = ("/health", "/ready")
"""Routes that need no token: they say whether the server works, and nothing else."""


class Guard:
    """Answers requests by an application, within a time; its errors become refusals.

    Nothing of a request enters the log. A traceback is written without its message and its values,
    which may hold a text.
    """

    def __init__(
        self,
        application: ASGIApp,
        access: Access,
        measures: Measures,
        routes: frozenset[str],
        seconds: float,
        log: Callable[[str], None],
    ) -> None:
        """Args:
        routes: paths that figures name; all others are one.
        seconds: time for a request.
        log: writes lines about errors.
        """
        self._application = application
        self._access = access
        self._measures = measures
        self._routes = routes
        self._seconds = seconds
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._application(scope, receive, send)
        status = 0
        started = time.perf_counter()

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        refusal = await self._answered(scope, receive, observed)
        if refusal is not None and not status:
            await error_answer(refusal)(scope, receive, observed)
        route = scope["path"] if scope["path"] in self._routes else "other"
        self._measures.requests.labels(route, str(status or "none")).inc()
        self._measures.seconds.labels(route).observe(time.perf_counter() - started)

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> Refusal | None:
        """Let the application answer; returns how the request is refused, if it is."""
        try:
            require_one_length(scope["headers"])
            if scope["path"] not in OPEN:
                self._access.check(scope["headers"])
            async with asyncio.timeout(self._seconds):
                await self._application(scope, receive, send)
        except ClientDisconnect:
            self._measures.cancelled.inc()
        except Refusal as refusal:
            return refusal
        except TimeoutError:
            return Refusal(
                504, f"The answer took more than {self._seconds:g} seconds.", code="timeout"
            )
        except Exception as error:
            self._log(anonymous(error))
            return INTERNAL
        return None


def require_one_length(headers: Iterable[Header]) -> None:
    """Raises: Refusal for a request that says twice where it ends.

    A proxy may take one for the end, and the rest for a request that it never checked.
    """
    names = {name for name, _ in headers}
    if {b"content-length", b"transfer-encoding"} <= names:
        raise Refusal(
            400,
            "Content-Length and Transfer-Encoding exclude each other.",
            headers={"Connection": "close"},
        )


def error_answer(refusal: Refusal) -> JSONResponse:
    """The answer to a request that is refused."""
    headers = dict(refusal.headers)
    if refusal.status in (408, 413):
        # The rest of the body is not read, so the connection cannot serve another request.
        headers["Connection"] = "close"
    return JSONResponse(refusal.body, refusal.status, headers)


def anonymous(error: BaseException) -> str:
    """The kind of an error and the lines where it arose, without its message."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    return f"internal error: {type(error).__name__}\n{frames}"


async def refused(_: Any, error: Exception) -> JSONResponse:
    """Handler of errors within the application, of which only refusals say what they are."""
    return error_answer(error if isinstance(error, Refusal) else INTERNAL)
