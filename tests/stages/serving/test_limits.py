"""Clients that wait, leave, send slowly or ask too much; and errors of the server itself."""

import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from stages.generation.session import Text
from stages.serving import bodies, connections
from stages.serving.engine import Engine
from tests.stages.serving.address import SECONDS, Address, serving

PRIVATE = "the secret hen"
Asked = tuple[Text, Sequence[int]]


def no_end(engine: Engine) -> np.ndarray:
    """A distribution without `<eos>`, [1, V]."""
    log_p = np.full((1, engine.vocabulary_size), -1.0)
    log_p[:, list(engine.ends)] = -np.inf
    return log_p


class Slow(Engine):
    """An engine whose text never ends, one token in a while."""

    def next_log_probs(self, memory: str, texts: Sequence[Asked]) -> list[np.ndarray]:
        time.sleep(0.01)
        return [no_end(self)] * len(texts)

    def accept(self, *_: object) -> None: ...


class Broken(Engine):
    """An engine that fails after a token; the message quotes a text."""

    def next_log_probs(self, memory: str, texts: Sequence[Asked]) -> list[np.ndarray]:
        if len(texts[0][0].passage) > 1:
            raise RuntimeError(PRIVATE)
        return [no_end(self)] * len(texts)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def raw(address: Address, sent: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", address.port), timeout=SECONDS)
    connection.sendall(sent)
    return connection


def request_bytes(body: bytes, length: int | None = None) -> bytes:
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {length or len(body)}\r\n\r\n".encode() + body


ENDLESS = b'{"prompt": "a", "max_tokens": 1000, "stream": true}'


def test_a_client_that_leaves_ends_its_request(engine: Engine) -> None:
    with serving(Slow(engine.sessions)) as address:
        connection = raw(address, request_bytes(ENDLESS))
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
        until(lambda: address.worker.active == 1)
        connection.close()
        until(lambda: address.worker.active == 0)
        # One that waits for the whole answer is noticed, too.
        waiting = raw(address, request_bytes(ENDLESS.replace(b"true", b"false")))
        until(lambda: address.worker.active == 1)
        waiting.close()
        until(lambda: address.worker.active == 0)
        until(lambda: "memlm_cancelled_total 2.0" in address.get("/metrics").body.decode())


def test_an_answer_that_takes_too_long_is_given_up(engine: Engine) -> None:
    with serving(Slow(engine.sessions), seconds=0.5) as address:
        reply = address.complete(prompt="a", max_tokens=1000)
        assert reply.status == 504 and reply.json["error"]["code"] == "timeout"
        until(lambda: address.worker.active == 0)
        with raw(address, request_bytes(ENDLESS)) as connection:
            received = b""
            while part := connection.recv(1 << 16):
                received += part
        assert b"data: {" in received and b"[DONE]" not in received
        until(lambda: address.worker.active == 0)


def test_requests_beyond_the_queue_are_told_to_come_back(engine: Engine) -> None:
    with serving(Slow(engine.sessions), max_waiting=1, max_active=1) as address:
        held = [raw(address, request_bytes(ENDLESS))]
        until(lambda: address.worker.active == 1)
        held.append(raw(address, request_bytes(ENDLESS)))
        until(lambda: address.worker.waiting == 1)
        reply = address.complete(prompt="a")
        assert reply.status == 429 and int(reply.headers["retry-after"]) > 0
        assert address.get("/health").status == 200
        for connection in held:
            connection.close()


def test_an_error_of_the_server_tells_its_log_where_and_nobody_what(engine: Engine) -> None:
    with serving(Broken(engine.sessions)) as address:
        reply = address.complete(prompt=PRIVATE, max_tokens=5)
        assert reply.status == 500 and "secret" not in reply.message
        streamed = address.complete(prompt=PRIVATE, max_tokens=5, stream=True).body
        assert b'data: {"error"' in streamed and b"[DONE]" not in streamed
        until(lambda: len(address.log) == 2)
    for text in address.log:
        assert "RuntimeError" in text and "test_limits.py" in text and "secret" not in text


def test_a_body_that_arrives_slowly_is_given_up(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.2)
    with raw(address, request_bytes(b"{", length=100)) as connection:
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 408")


def test_a_connection_without_a_request_is_closed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    with serving(engine) as address:
        with raw(address, b"GET /health HTTP/1.1\r\nHost: loc") as slow:
            begun = time.monotonic()
            with suppress(ConnectionResetError):
                assert slow.recv(1) == b""
            assert 0.2 < time.monotonic() - begun < SECONDS / 2
        assert address.get("/health").status == 200


SMUGGLED = [
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nContent-Length: 40\r\n\r\nabcd",
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n",
    b"GET /health HTTP/1.1\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n",
    b"GET /hea\x00lth HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /health HTTP/1.1\nX: " + b"a" * 100_000,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
]


@pytest.mark.parametrize("sent", SMUGGLED, ids=range(len(SMUGGLED)))
def test_what_two_servers_would_read_differently_is_refused(address: Address, sent: bytes) -> None:
    with raw(address, sent) as connection:
        received = b""
        while part := connection.recv(1 << 16):
            received += part
    assert received.startswith((b"HTTP/1.1 400", b"HTTP/1.1 415", b"HTTP/1.1 501"))
    assert received.count(b"HTTP/1.1") == 1
    assert address.get("/health").status == 200


def test_many_clients_are_answered_alike(address: Address) -> None:
    asked = {"prompt": "the cat", "max_tokens": 4, "seed": 1, "logprobs": 1}
    want = address.complete(**asked).json["choices"]
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(address.complete(**asked).json["choices"]))
        for _ in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 12
    for (choice,) in found:
        assert choice["text"] == want[0]["text"]
        assert choice["logprobs"]["token_logprobs"] == pytest.approx(
            want[0]["logprobs"]["token_logprobs"], abs=1e-5
        )
