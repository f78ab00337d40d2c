"""A bucket (s3, gs or az) or a folder (file) that holds copies of artifacts."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any

from stages.artifacts.durable import disk_failure
from stages.errors import DataError, ResourceError, UsageError

FOLDER = "file://"
SCHEMES = ("s3://", "gs://", "az://", FOLDER)
PART = 8 << 20
"""Least number of bytes that are sent or received at a time."""
MOST_PARTS = 9000
"""Most parts of one object; S3 accepts 10,000."""
PATIENCE = timedelta(seconds=30)
"""Time limit for connecting, and for retrying a failed request."""
LONGEST = timedelta(days=1)
"""Time limit for the transfer of one object; the library's default is 30 seconds."""


class Bucket:
    """A prefix in an object store. Credentials and region come from the environment variables of
    each service's tools.

    Args:
        url: address such as `s3://BUCKET/PREFIX`; AWS_ENDPOINT_URL names a self-hosted server.
    Raises: UsageError for an invalid address, or if the package obstore is missing.
    """

    def __init__(self, url: str) -> None:
        if not url.startswith(SCHEMES):
            raise UsageError(
                f"{url[:200]!r} is no address of a bucket: {', '.join(SCHEMES)} begin one."
            )
        try:
            import obstore
        except ImportError:
            raise UsageError(
                "Buckets need the package obstore: pip install 'memlm[bucket]'."
            ) from None
        self.url = url.rstrip("/")
        self._obstore = obstore
        with self._refusals("", UsageError):
            self._objects: Any = obstore.store.from_url(self.url, **_settings(url))

    def size(self, name: str) -> int | None:
        """Size of an object in bytes; None if it does not exist."""
        with self._refusals(name):
            try:
                return int(self._obstore.head(self._objects, name)["size"])
            except FileNotFoundError:
                return None

    def folders(self, prefix: str) -> list[str]:
        """Names of the folders right below a prefix, such as the ids below `tokens`."""
        with self._refusals(prefix):
            listed = self._obstore.list_with_delimiter(self._objects, prefix)
            return [PurePosixPath(path).name for path in listed["common_prefixes"]]

    def read(self, name: str, max_bytes: int) -> bytes | None:
        """Content of a small object; None if it does not exist. Raises: DataError if it has more
        than `max_bytes` bytes.
        """
        size = self.size(name)
        if size is None:
            return None
        if size > max_bytes:
            raise DataError(f"{self.url}/{name} has {size:,} bytes, which is more than it may.")
        return b"".join(self.stream(name))

    def stream(self, name: str) -> Iterator[bytes]:
        """Content of an object, block by block. Raises: DataError if it does not exist, or a
        transfer fails.
        """
        with self._refusals(name):
            for block in self._obstore.get(self._objects, name).stream(min_chunk_size=PART):
                yield bytes(block)

    def upload(self, name: str, file: Path, sent: Callable[[int], None]) -> None:
        """Upload a file as an object. It appears once it is complete, and replaces an existing
        object.

        Args:
            sent: receives the number of bytes of each part.
        """
        with file.open("rb") as content, self._refusals(name):
            part = max(PART, file.stat().st_size // MOST_PARTS)
            writer = self._obstore.open_writer(self._objects, name, buffer_size=part)
            while block := content.read(part):
                writer.write(block)
                sent(len(block))
            writer.close()

    def create(self, name: str, content: bytes) -> bool:
        """Create a small object. Returns: False if it exists already; it is then left unchanged."""
        with self._refusals(name):
            try:
                self._obstore.put(self._objects, name, content, mode="create")
            except self._obstore.exceptions.AlreadyExistsError:
                return False
        return True

    @contextmanager
    def _refusals(self, name: str, kind: type[Exception] = DataError) -> Iterator[None]:
        """Turn errors of the library into short messages, since its own contain pages of internal
        state.
        """
        try:
            yield
        except FileNotFoundError as error:
            raise kind(
                f"{self.url}{name and '/'}{name}: there is no such bucket, or nothing of that name."
            ) from error
        except (self._obstore.exceptions.BaseError, ValueError, OSError) as error:
            failure = (
                disk_failure(error, Path(self.url.removeprefix(FOLDER)))
                if self.url.startswith(FOLDER)
                else None
            )
            if failure is not None:
                raise ResourceError(failure) from error
            reason = next(
                (line.strip() for line in str(error).splitlines() if line.strip()),
                type(error).__name__,
            )
            raise kind(f"{self.url}{name and '/'}{name} cannot be used: {reason[:300]}") from error


def _settings(url: str) -> dict[str, Any]:
    """Settings for the library: make a missing folder, set time limits, and allow http for a
    self-hosted server.
    """
    if url.startswith(FOLDER):
        return {"mkdir": True}
    plain = url.startswith("s3://") and os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
    client = {"timeout": LONGEST, "connect_timeout": PATIENCE} | (
        {"allow_http": True} if plain else {}
    )
    return {"retry_config": {"retry_timeout": PATIENCE}, "client_options": client}
