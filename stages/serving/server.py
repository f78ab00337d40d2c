"""A server: its port, its model, and its end."""

import errno
import logging
import socket
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from stages.errors import UsageError
from stages.serving.connections import WatchedConnection
from stages.serving.settings import HEAD_SECONDS, MAX_CONNECTIONS

SHUTDOWN_SECONDS = 10
"""Time that answers under way have when the server ends."""


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket bound to an address. Raises: UsageError if it cannot be had.

    It is bound before a model is loaded, which takes long.
    """
    numeric = _numeric_address(host)
    bound = socket.socket(socket.AF_INET6 if ":" in numeric else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((numeric, port))
    except OSError as error:
        bound.close()
        raise UsageError(f"{_fault(error, host, port)} ({error.strerror}).") from None
    return bound


def _numeric_address(host: str) -> str:
    """A host as numbers. Raises: UsageError for a name that leads nowhere."""
    try:
        return str(ip_address(host))
    except ValueError:
        pass
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise UsageError(f"--host {host} is no address: {error.strerror}.") from None


def _fault(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"--port {port} is in use; choose another, or 0 for any that is free"
    if error.errno == errno.EACCES:
        return f"--port {port} may not be used; choose one above 1023"
    return f"--host {host} --port {port} cannot be listened at"


def address_of(bound: socket.socket) -> str:
    """The URL of a socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def make_server(application: ASGIApp, ready: Callable[[], Any]) -> uvicorn.Server:
    """A server; `run` answers until the process is asked to end.

    Args:
        ready: called when requests are accepted.
    """
    # Its messages quote requests and errors, which may hold a text.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    config = uvicorn.Config(
        application,
        http=WatchedConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=int(HEAD_SECONDS),
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    return _Server(config, ready)


class _Server(uvicorn.Server):
    """A server that says when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], Any]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._ready()
