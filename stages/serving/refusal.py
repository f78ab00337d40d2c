"""Requests that are refused, with the status and the body of the answer."""

from collections.abc import Mapping
from typing import Any


class Refusal(Exception):
    """A request that cannot be answered; the message names the fault and the remedy."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Args:
        status: HTTP status.
        param: field of the request that is at fault.
        code: fixed name of the fault, for programs.
        headers: further headers of the answer.
        """
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        """The error as clients of this kind of address expect it."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {
            "error": {
                "message": self.message,
                "type": kind,
                "param": self.param,
                "code": self.code,
            }
        }


def invalid(message: str, param: str | None = None, code: str | None = None) -> Refusal:
    """A refusal of a field with status 400."""
    return Refusal(400, message, param=param, code=code)


INTERNAL = Refusal(500, "An internal error, which the server's log describes.")
"""The answer to a request that met a bug."""
