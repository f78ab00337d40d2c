"""Settings and limits of an address. Free of torch and of the web framework."""

from typing import Annotated

from pydantic import Field

from stages.config import Settings, Spelling

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Hosts that only this machine can reach."""


class ServeSettings(Settings):
    """Where a model answers, and who may ask."""

    host: str = LOOPBACK[0]
    """Address to listen at; any but those of this machine needs `token_file`."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """Port to listen at; 0: any that is free."""
    token_file: Annotated[str | None, Spelling("FILE")] = None
    """File with the token that requests must bear, which only its owner may read."""
    admin_token_file: Annotated[str | None, Spelling("FILE")] = None
    """The same of requests that add and delete documents; without it nobody may."""


MAX_BODY = 1 << 20
"""Bytes of a request."""
MAX_DROPPED = 32 << 20
"""Bytes of a larger body that are read and dropped before it is refused."""
MAX_PROMPTS = 128
"""Prompts of a request."""
MAX_MESSAGES = 1000
"""Messages of a conversation."""
MAX_TOKENS = 1024
"""Tokens written for each prompt."""
MAX_STREAM = 1 << 15
"""Tokens of a prompt for models that carry state, and so have no window."""
MAX_STOPS = 16
"""Strings that end a text."""
MAX_STOP_LENGTH = 256
"""Characters of such a string."""
MAX_LOGPROBS = 20
"""Likeliest tokens listed for each token."""
MAX_LISTED = 1 << 19
"""Log-probabilities in an answer."""
MAX_CONTEXTS = 16
"""Passages listed for each token."""
MAX_WAITING = 64
"""Requests that wait for the model; later ones are refused until there is room."""
MAX_ACTIVE = 8
"""Requests that the model works on in turn."""
MAX_ROWS = 16
"""Texts that the model continues in one step."""
MAX_CONNECTIONS = 512
"""Open connections."""
REQUEST_SECONDS = 120.0
"""Time for a request, from its first byte to the last byte of the answer."""
BODY_SECONDS = 30.0
"""Time in which a request's body must arrive."""
HEAD_SECONDS = 30.0
"""Time in which the head of a request must arrive, and for which an idle connection is kept."""
MAX_NAME = 256
"""Characters of a document's name."""
MAX_JOBS = 1000
"""Documents that wait to be added or deleted."""
MAX_NAMES = 10_000
"""Documents in a list."""
