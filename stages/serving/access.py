"""Who may ask: the token that requests bear, and the names under which this machine is addressed."""

import base64
import hashlib
import hmac
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from stages.errors import UsageError
from stages.serving.refusal import Refusal
from stages.serving.settings import LOOPBACK, ServeSettings

TOKEN = re.compile(r"[\x21-\x7e]{16,512}")
"""A token: visible characters, as a header can hold them."""
MAX_TOKEN_FILE = 4096
Header = tuple[bytes, bytes]


class Access:
    """Decides which requests are answered."""

    def __init__(self, token: str | None, host: str) -> None:
        """Args:
        token: token that requests must bear; None: no token is needed.
        host: the address that is listened at.
        """
        self._digest = None if token is None else _digest(token)
        self._hosts = None if token is not None else {*LOOPBACK, "[::1]", host}

    @classmethod
    def of(cls, settings: ServeSettings) -> "Access":
        """Access as settings ask for. Raises: UsageError for an address or a file that is unsafe."""
        if settings.token_file is not None:
            return cls(read_token(Path(settings.token_file)), settings.host)
        if settings.host not in LOOPBACK:
            raise UsageError(
                f"--host {settings.host} can be reached from other machines: name the file of a token with --token-file."
            )
        return cls(None, settings.host)

    def check(self, headers: Iterable[Header]) -> None:
        """Raises: Refusal for a request without the token, or one for another host.

        Without a token, pages of other sites could reach this machine by a name of their own that
        leads here; their requests bear that name.
        """
        named = dict(headers)
        if self._hosts is not None and _host_name(named.get(b"host", b"")) not in self._hosts:
            raise Refusal(403, "The header Host names another machine.", code="wrong_host")
        if self._digest is None:
            return
        # Digests have one length, so the time of a comparison says nothing about the token.
        given = _token_of(named.get(b"authorization", b"").decode("latin-1"))
        if not hmac.compare_digest(_digest(given), self._digest):
            raise Refusal(
                401,
                "This address needs a token: Authorization: Bearer TOKEN, or as the password of a browser.",
                code="invalid_api_key",
                headers={"WWW-Authenticate": 'Basic realm="memlm", charset="UTF-8"'},
            )


def _token_of(header: str) -> str:
    """The token in a header Authorization; browsers send it as a password."""
    kind, _, given = header.partition(" ")
    if kind.lower() == "bearer":
        return given
    if kind.lower() != "basic":
        return ""
    try:
        return base64.b64decode(given, validate=True).decode("latin-1").partition(":")[2]
    except ValueError:
        return ""


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _host_name(header: bytes) -> str:
    """The name in a header Host, without its port."""
    host = header.decode("latin-1").lower()
    return re.sub(r":\d*$", "", host)


def read_token(path: Path) -> str:
    """The token in a file. Raises: UsageError if others may read it, or it holds no token."""
    try:
        # Opened once: whoever changes the path between two looks changes nothing.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise UsageError(f"--token-file {path} cannot be read: {error.strerror}.") from None
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise UsageError(f"--token-file {path} is no regular file.")
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise UsageError(f"--token-file {path} is open to others: chmod 600 {path}")
        token = os.read(descriptor, MAX_TOKEN_FILE).decode("latin-1").strip()
    finally:
        os.close(descriptor)
    if not TOKEN.fullmatch(token):
        raise UsageError(
            f"--token-file {path} holds no token: one line of 16 to 512 visible characters is needed, for example "
            "from openssl rand -hex 32."
        )
    return token
