"""Who may ask: the token that requests bear, and the names under which this machine is addressed."""

import base64
import hashlib
import hmac
import os
import re
import stat
from collections.abc import Iterable, Mapping
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

    def __init__(self, token: str | None, host: str, admin: str | None = None) -> None:
        """Args:
        token: token that requests must bear; None: no token is needed.
        host: the address that is listened at.
        admin: token of those who may change documents; None: nobody may.
        """
        self._digest = None if token is None else _digest(token)
        self._admin = None if admin is None else _digest(admin)
        self._hosts = None if token is not None else {*LOOPBACK, "[::1]", host}

    @classmethod
    def of(cls, settings: ServeSettings) -> "Access":
        """Access as settings ask for. Raises: UsageError for an address or a file that is unsafe."""
        admin = None
        if settings.admin_token_file is not None:
            admin = read_token(Path(settings.admin_token_file), "--admin-token-file")
        if settings.token_file is not None:
            return cls(read_token(Path(settings.token_file)), settings.host, admin)
        if settings.host not in LOOPBACK:
            raise UsageError(
                f"--host {settings.host} can be reached from other machines: name the file of a token with --token-file."
            )
        return cls(None, settings.host, admin)

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
        digest = _given_digest(named)
        if not (_is_same(digest, self._digest) or _is_same(digest, self._admin)):
            raise Refusal(
                401,
                "This address needs a token: Authorization: Bearer TOKEN, or as the password of a browser.",
                code="invalid_api_key",
                headers={"WWW-Authenticate": 'Basic realm="memlm", charset="UTF-8"'},
            )

    def check_admin(self, headers: Iterable[Header]) -> None:
        """Raises: Refusal for a request that may not change documents."""
        if self._admin is None:
            raise Refusal(
                403,
                "Nobody may see or change documents here: the server began without --admin-token-file.",
                code="documents_disabled",
            )
        if not _is_same(_given_digest(dict(headers)), self._admin):
            raise Refusal(
                401,
                "Documents need the admin token: Authorization: Bearer TOKEN.",
                code="invalid_admin_key",
                headers={"WWW-Authenticate": "Bearer"},
            )


def _given_digest(headers: Mapping[bytes, bytes]) -> bytes:
    """Digest of the token that a request bears."""
    return _digest(_token_of(headers.get(b"authorization", b"").decode("latin-1")))


def _is_same(digest: bytes, wanted: bytes | None) -> bool:
    """Whether two digests agree; the time of the comparison says nothing about a token."""
    return wanted is not None and hmac.compare_digest(digest, wanted)


def _token_of(header: str) -> str:
    """The token in a header Authorization; browsers send it as a password."""
    kind, _, credentials = header.partition(" ")
    if kind.lower() == "bearer":
        return credentials
    if kind.lower() != "basic":
        return ""
    try:
        return base64.b64decode(credentials, validate=True).decode("latin-1").partition(":")[2]
    except ValueError:
        return ""


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _host_name(header: bytes) -> str:
    """The name in a header Host, without its port."""
    host = header.decode("latin-1").lower()
    return re.sub(r":\d*$", "", host)


def read_token(path: Path, option: str = "--token-file") -> str:
    """The token in a file. Raises: UsageError if others may read it, or it holds no token."""
    try:
        # Opened once: whoever changes the path between two looks changes nothing.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise UsageError(f"{option} {path} cannot be read: {error.strerror}.") from None
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise UsageError(f"{option} {path} is no regular file.")
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise UsageError(f"{option} {path} is open to others: chmod 600 {path}")
        token = os.read(descriptor, MAX_TOKEN_FILE).decode("latin-1").strip()
    finally:
        os.close(descriptor)
    if not TOKEN.fullmatch(token):
        raise UsageError(
            f"{option} {path} holds no token: one line of 16 to 512 visible characters is needed, for example "
            "from openssl rand -hex 32."
        )
    return token
