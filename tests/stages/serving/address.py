"""A server of small models in this process, at a port that is free."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any, NamedTuple

from stages.serving.access import Access
from stages.serving.app import application
from stages.serving.changes import ChangingMemories, DocumentChanges
from stages.serving.engine import Engine, answer_for
from stages.serving.served import ServedModel, Serving
from stages.serving.server import listening_socket, make_server
from stages.serving.worker import Worker

SECONDS = 20


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        return self.json["error"]["message"]

    @property
    def events(self) -> list[Any]:
        """The JSON of each event but the last, which ends the stream."""
        lines = self.body.decode().strip().split("\n\n")
        assert lines[-1] == "data: [DONE]"
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


class Address(NamedTuple):
    """A server that runs, and what it serves."""

    port: int
    serving: Serving
    worker: Worker
    log: list[str]

    @property
    def served(self) -> ServedModel:
        return self.serving.model

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] = {},
    ) -> Reply:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            connection.request(method, path, body, dict(headers))
            reply = connection.getresponse()
            return Reply(reply.status, dict(reply.getheaders()), reply.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, None, headers)

    def post(self, path: str, content: Any, **headers: str) -> Reply:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return self.ask("POST", path, body, {"Content-Type": "application/json", **headers})

    def complete(self, **fields: Any) -> Reply:
        return self.post("/v1/completions", fields)


@contextmanager
def serving(
    engine: Engine,
    name: str = "small",
    *,
    token: str | None = None,
    seconds: float = SECONDS,
    changing: ChangingMemories | None = None,
    admin: str | None = None,
    works: bool = True,
    **limits: int,
) -> Iterator[Address]:
    """A server of an engine.

    Args:
        changing: its documents may change, for requests with the token `admin`.
        works: whether jobs are done.
        limits: those of its worker.
    """
    log: list[str] = []
    served = Serving(ServedModel(name, engine))
    # Artifacts of a generation are removed once nobody holds its engine.
    del engine
    changes = None if changing is None else DocumentChanges(changing, served, log.append)
    documents = None if changes is None else changes.documents
    worker = Worker(answer_for, **limits)
    bound = listening_socket("127.0.0.1", 0)
    accepts = threading.Event()
    access = Access(token, "127.0.0.1", admin)
    answered = application(served, worker, access, log.append, seconds, documents)
    server = make_server(answered, accepts.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    port = bound.getsockname()[1]
    thread.start()
    if changes is not None and works:
        changes.start()
    try:
        assert accepts.wait(SECONDS)
        yield Address(port, served, worker, log)
    finally:
        server.should_exit = True
        thread.join()
        worker.close()
        if changes is not None and works:
            changes.close()
