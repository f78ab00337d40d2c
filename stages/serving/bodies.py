"""Bodies of requests: strict JSON, and settings that are checked field by field."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request

from stages.serving.refusal import Refusal, invalid
from stages.serving.settings import BODY_SECONDS, MAX_BODY, MAX_DROPPED


class Body(BaseModel):
    """Fields of a request; unknown ones are ignored, as clients of this interface expect."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)


B = TypeVar("B", bound=Body)


def json_object(body: bytes) -> dict[str, Any]:
    """The object that a body holds. Raises: Refusal for anything but JSON as its standard has it.

    Python's own reader also takes `NaN` and `Infinity`, and text that no encoding can write.
    """
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        raise invalid(f"The body is no UTF-8 (byte {error.start + 1}).") from None
    except UnicodeEncodeError:
        raise invalid("The body holds half of a surrogate pair, which is no text.") from None
    except RecursionError:
        raise invalid("The body is nested too deeply.") from None
    except ValueError as error:
        raise invalid(f"The body is no JSON: {_reason(error)}.") from None
    if not isinstance(value, dict):
        raise invalid("The body is no JSON object.")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _reason(error: ValueError) -> str:
    """The fault and its place, without the text around it."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos + 1}"
    return str(error).partition(";")[0]


def checked(model: type[B], values: Mapping[str, Any]) -> B:
    """The fields of a request. Raises: Refusal naming the first field that is wrong."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(map(str, problem["loc"])) or None
    message = problem["msg"].removeprefix("Value error, ")
    raise invalid(f"{field or 'body'}: {message[:1].lower()}{message[1:]}.", field)


async def read_object(request: Request) -> dict[str, Any]:
    """The JSON object in the body of a request. Raises: Refusal for anything else."""
    # Browsers send other types across sites without asking first.
    require_type(request, "application/json")
    return json_object(await read_body(request))


def require_type(request: Request, media_type: str) -> None:
    """Raises: Refusal for a body of another type."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != media_type:
        raise Refusal(415, f"Content-Type: {media_type} is needed.")


async def read_body(request: Request) -> bytes:
    """The body of a request. Raises: Refusal if it is too large, or arrives too slowly."""
    body = bytearray()
    length = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                length += len(part)
                if length <= MAX_BODY:
                    body += part
                # A client that still sends would not see the refusal, so some more is read.
                if length > MAX_DROPPED:
                    break
    except TimeoutError:
        raise Refusal(408, f"The body took more than {BODY_SECONDS:g} seconds.") from None
    if length > MAX_BODY:
        raise Refusal(413, f"A body has at most {MAX_BODY:,} bytes.")
    return bytes(body)
