"""A bucket, s3, gs or az, or a folder, file, in which copies of artifacts lie."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from stages.artifacts.durable import disk_failure
from stages.errors import DataError, ResourceError, UsageError

FOLDER = "file://"
SCHEMES = ("s3://", "gs://", "az://", FOLDER)
PART = 8 << 20
"""Bytes that are sent or received at a time, at least."""
MOST_PARTS = 9000
"""Maximum number of parts of one object; S3 takes 10,000."""
PATIENCE = timedelta(seconds=30)
"""Time that a server may fail, or not answer."""
LONGEST = timedelta(days=1)
"""Time that one object may take; the library's own limit is 30 seconds."""


class Bucket:
    """A place in an object store; keys and region are those of the environment, as each service's own tools read them.

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

    def size(self, name: str) -> int | None:
        """Bytes of an object; None if it is not there."""
        with self._refusals(name):
            try:
                return int(self._obstore.head(self._objects, name)["size"])
            except FileNotFoundError:
                return None

    def read(self, name: str, most: int) -> bytes | None:
        """A small object; None if it is not there. Raises: DataError if it has more than `most` bytes."""
        size = self.size(name)
        if size is None:
            return None
        if size > most:
            raise DataError(f"{self.url}/{name} has {size:,} bytes, which is more than it may.")
        return b"".join(self.stream(name))

    def stream(self, name: str) -> Iterator[bytes]:
        """An object, some of it at a time. Raises: DataError if it is not there, or does not arrive."""
        with self._refusals(name):
            for block in self._obstore.get(self._objects, name).stream(min_chunk_size=PART):
                yield bytes(block)

    def upload(self, name: str, file: Path, sent: Callable[[int], None]) -> None:
        """Write a file as an object, which is there once all of it has arrived; whatever was there is replaced.

        Args:
            sent: hears of every so many bytes.
        """
        with file.open("rb") as content, self._refusals(name):
            part = max(PART, file.stat().st_size // MOST_PARTS)
            writer = self._obstore.open_writer(self._objects, name, buffer_size=part)
            while block := content.read(part):
                writer.write(block)
                sent(len(block))
            writer.close()

    def create(self, name: str, content: bytes) -> bool:
        """Write a small object. Returns: False if it is there already, which then stays as it is."""
        with self._refusals(name):
            try:
                self._obstore.put(self._objects, name, content, mode="create")
            except self._obstore.exceptions.AlreadyExistsError:
                return False
        return True

    @contextmanager
    def _refusals(self, name: str, kind: type[Exception] = DataError) -> Iterator[None]:
        """Turn a bucket's answers into sentences; the library adds pages of its own state."""
        try:
            yield
        except FileNotFoundError as error:
            raise kind(f"{self.url}{name and '/'}{name}: there is no such bucket, or nothing of that name.") from error
        except (self._obstore.exceptions.BaseError, ValueError, OSError) as error:
            failure = disk_failure(error, Path(self.url.removeprefix(FOLDER))) if self.url.startswith(FOLDER) else None
            if failure is not None:
                raise ResourceError(failure) from error
            reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise kind(f"{self.url}{name and '/'}{name} cannot be used: {reason[:300]}") from error


def _settings(url: str) -> dict[str, Any]:
    """Settings that an address does not name: a folder may be made, and a server of one's own may speak http."""
    if url.startswith(FOLDER):
        return {"mkdir": True}
    plain = url.startswith("s3://") and os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
    client = {"timeout": LONGEST, "connect_timeout": PATIENCE} | ({"allow_http": True} if plain else {})
    return {"retry_config": {"retry_timeout": PATIENCE}, "client_options": client}
