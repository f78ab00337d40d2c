"""A bucket, s3, gs or az, or a folder, file, that holds copies of artifacts as a store does: KIND/ID/FILE."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from stages.errors import DataError, UsageError

SCHEMES = ("s3://", "gs://", "az://", "file://")
PART = 8 << 20
"""Bytes that are received at a time, at least."""
PATIENCE = timedelta(seconds=30)
"""With a server that fails or does not answer."""


class Bucket:
    """What lies below an address; keys and region are those of the environment, as each service's own tools read them.

    Args:
        url: `s3://BUCKET/PREFIX`; a server of one's own is named by AWS_ENDPOINT_URL.
    Raises: UsageError for an address that is none, or without the package obstore.
    """

    def __init__(self, url: str) -> None:
        if not url.startswith(SCHEMES):
            raise UsageError(f"{url[:200]!r} is no address of a bucket: {', '.join(SCHEMES)} begin one.")
        try:
            import obstore
        except ImportError:
            raise UsageError("Buckets need the package obstore: pip install 'memlm[bucket]'.") from None
        self.url = url.rstrip("/")
        self._obstore = obstore
        with self._refusals("", UsageError):
            self._objects: Any = obstore.store.from_url(self.url, **_settings(url))

    def read(self, name: str) -> bytes | None:
        """A small object; None if it is not there."""
        with self._refusals(name):
            try:
                return bytes(self._obstore.get(self._objects, name).bytes())
            except FileNotFoundError:
                return None

    def size(self, name: str) -> int | None:
        """Bytes of an object; None if it is not there."""
        with self._refusals(name):
            try:
                return int(self._obstore.head(self._objects, name)["size"])
            except FileNotFoundError:
                return None

    def upload(self, name: str, file: Path) -> None:
        """Write a file as an object, in parts where it is large; whatever was there is replaced."""
        with self._refusals(name):
            self._obstore.put(self._objects, name, file)

    def create(self, name: str, content: bytes) -> bool:
        """Write a small object. Returns: False if it is there already, which then stays as it is."""
        with self._refusals(name):
            try:
                self._obstore.put(self._objects, name, content, mode="create")
            except self._obstore.exceptions.AlreadyExistsError:
                return False
        return True

    def stream(self, name: str) -> Iterator[bytes]:
        """An object, some of it at a time. Raises: DataError if it is not there, or does not arrive."""
        with self._refusals(name):
            for block in self._obstore.get(self._objects, name).stream(min_chunk_size=PART):
                yield bytes(block)

    @contextmanager
    def _refusals(self, name: str, kind: type[Exception] = DataError) -> Iterator[None]:
        """What a bucket answers, in a sentence; the library adds pages of its own state."""
        try:
            yield
        except (self._obstore.exceptions.BaseError, ValueError, OSError) as error:
            reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise kind(
                f"{name if kind is UsageError else f'{self.url}/{name}'} cannot be used: {reason[:300]}"
            ) from error


def _settings(url: str) -> dict[str, Any]:
    """What an address does not say: a folder may be made, and a server of one's own may speak http."""
    if url.startswith("file://"):
        return {"mkdir": True}
    retries = {"retry_config": {"retry_timeout": PATIENCE}}
    plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
    return retries | ({"client_options": {"allow_http": True}} if plain and url.startswith("s3://") else {})
