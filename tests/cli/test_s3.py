"""Copies in a bucket of a real S3 server, moto's, in this process; `pip install 'moto[s3]' flask
flask-cors` has it.
"""

import os
import subprocess
import sys
import urllib.request
import warnings
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.builders.small_commands import Lineage, made
from tests.cli.conftest import Memlm

pytest.importorskip("obstore")
for package in ("moto", "flask", "flask_cors"):
    pytest.importorskip(package)
__all__ = ["made"]

URL = "s3://copies/of/memlm"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of an S3 server with one bucket."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from moto.server import ThreadedMotoServer

        running = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
        running.start()
        host, port = running.get_host_and_port()
        address = f"http://{host}:{port}"
        urllib.request.urlopen(urllib.request.Request(f"{address}/copies", method="PUT")).close()
        yield address
        running.stop()


@pytest.fixture(autouse=True)
def environment(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of somebody who uses the server."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")


def test_copies_go_there_and_come_back(memlm: Memlm, made: Lineage, tmp_path: Path) -> None:
    lineage, other = [made.tokens, made.model, made.datastore], tmp_path / "other"
    sent = memlm("artifacts", "push", made.datastore, URL)
    assert (sent.code, sent.out.split()) == (0, lineage), sent.err
    assert memlm("artifacts", "push", made.datastore, URL).out == ""
    received = memlm("artifacts", "pull", made.datastore, URL, "--store", other)
    assert (received.code, received.out.split()) == (0, lineage), received.err
    assert memlm("artifacts", "verify", "--store", other).code == 0


def test_a_push_that_was_killed_is_completed_by_the_next(
    memlm: Memlm, made: Lineage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from moto.s3.models import S3Backend

    url, arrived = f"{URL}/killed", list[str]()
    words = [sys.executable, "-m", "memlm_cli", "artifacts", "push", made.datastore, url]
    put = S3Backend.put_object

    def killing(self: Any, bucket_name: str, key_name: str, *given: Any, **named: Any) -> Any:
        arrived.append(key_name)
        if f"{made.model}/" in key_name:
            pushing.kill()
            pushing.wait()
        return put(self, bucket_name, key_name, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(S3Backend, "put_object", killing)
        pushing = subprocess.Popen(words, env=os.environ | {"MEMLM_STORE": str(tmp_path / "store")})
        assert pushing.wait(timeout=100) == -9
    assert arrived[-2].endswith(f"{made.tokens}/manifest.json") and f"{made.model}/" in arrived[-1]
    lost = memlm("artifacts", "pull", made.model, url, "--store", tmp_path / "other")
    assert (lost.code, str(made.model) in lost.err) == (3, True), lost.err
    sent = memlm("artifacts", "push", made.datastore, url)
    assert (sent.code, sent.out.split()) == (0, [made.model, made.datastore]), sent.err
    assert memlm("artifacts", "pull", made.datastore, url, "--store", tmp_path / "other").code == 0
    assert memlm("artifacts", "verify", "--store", tmp_path / "other").code == 0


def test_a_bucket_that_is_not_there_is_named(memlm: Memlm, made: Lineage) -> None:
    sent = memlm("artifacts", "push", made.tokens, "s3://another/place")
    assert sent.code == 3
    assert "s3://another/place" in sent.err
    received = memlm("artifacts", "pull", made.tokens, "s3://another/place")
    assert (received.code, made.tokens in received.err, "s3://another/place" in received.err) == (
        3,
        True,
        True,
    )


def test_a_server_that_does_not_answer_is_told(
    memlm: Memlm, made: Lineage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("stages.artifacts.bucket.PATIENCE", timedelta(seconds=1))
    ended = memlm("artifacts", "push", made.tokens, URL)
    assert ended.code == 3, ended.err
