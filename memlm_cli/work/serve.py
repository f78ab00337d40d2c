"""Work of `memlm serve`: a model with its memories answers over HTTP."""

import json
from contextlib import closing
from socket import socket

from memlm_cli.arguments import read_reference
from memlm_cli.console import answer, say
from memlm_cli.exit_codes import resumable
from memlm_cli.inspection_text import memory_lines
from memlm_cli.options import Asked
from memlm_cli.progress import not_working
from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.inspection.settings import ReadSettings, Request
from stages.serving.access import Access
from stages.serving.app import application
from stages.serving.engine import Engine
from stages.serving.served import ServedModel, check_model_name
from stages.serving.server import address_of, listening_socket, make_server
from stages.serving.settings import ServeSettings
from stages.serving.worker import Worker

STOPPED = "answers under way were finished or cancelled"


def serve(source: str | None, where: ServeSettings, reading: ReadSettings, *, asked: Asked) -> None:
    """Carry out `memlm serve`."""
    access = Access.of(where)
    store = asked.open_store()
    name, request = _request(read_reference(source), reading, store)
    check_model_name(name)
    # A port that is in use is found before the model is loaded, which takes long.
    with closing(listening_socket(where.host, where.port)) as bound:
        served = ServedModel(name, Engine.open(request, store, name))
        for line in memory_lines(served.engine.reader(name).memories):
            say(f"serve: {line}")
        _answer_requests(served, access, bound, asked.json)


def _answer_requests(served: ServedModel, access: Access, bound: socket, as_json: bool) -> None:
    """Answer until a signal ends the process."""

    def log(text: str) -> None:
        say(f"serve: {text}")

    def announce() -> None:
        address = address_of(bound)
        answer(json.dumps({"address": address, "model": served.name}) if as_json else address)

    worker = Worker(served.engine.next_log_probs)
    server = make_server(application(served, worker, access, log), announce)
    try:
        with resumable(STOPPED), not_working():
            server.run(sockets=[bound])
    finally:
        worker.close()


def _request(reference: str, reading: ReadSettings, store: Store) -> tuple[str, Request]:
    """The name of what is served, and the question that says how it is read."""
    artifact = store.get(reference, "report", "model", "index", "neighbors")
    name = reference.rstrip("/").rpartition("/")[2]
    if artifact.kind != "report":
        return name, Request(source=artifact.reference, **dict(reading))
    if reading.report is not None:
        raise UsageError(f"{reference} is a report already: leave --report {reading.report} out.")
    settings = dict(reading) | {"report": None if reading.memory else artifact.reference}
    return name, Request(source=artifact.input("model").reference, **settings)
