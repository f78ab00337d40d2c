"""`memlm serve`: a model with its memories answers over HTTP."""

import json
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from memlm_cli import completion
from memlm_cli.console import answer, say
from memlm_cli.exit_codes import resumable
from memlm_cli.inspection_text import memory_lines
from memlm_cli.options import Asked, OptionsOf, ReadOptions
from stages.errors import UsageError

if TYPE_CHECKING:
    from socket import socket

    from stages.artifacts.store import Store
    from stages.inspection.settings import ReadSettings, Request
    from stages.serving.access import Access
    from stages.serving.served import ServedModel
    from stages.serving.settings import ServeSettings

STOPPED = "answers under way were finished or cancelled"


def serve(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="REF",
            autocompletion=completion.artifacts("report", "index", "model", "neighbors"),
            help="A report, whose model and memories are read; or a model, index or neighbors; - or left out: read "
            "from stdin.",
        ),
    ] = None,
    *,
    where: Annotated["ServeSettings", OptionsOf("stages.serving.settings:ServeSettings")],
    reading: ReadOptions,
    asked: Asked,
) -> None:
    """Answer over HTTP with a model and its memories: completions, scores of prompts, sources."""
    from memlm_cli.arguments import read_reference
    from stages.serving.access import Access
    from stages.serving.engine import Engine
    from stages.serving.served import ServedModel, check_model_name
    from stages.serving.server import listening_socket

    access = Access.of(where)
    store = asked.open_store()
    name, request = _request(read_reference(source), reading, store)
    check_model_name(name)
    # A port that is in use is found before the model is loaded, which takes long.
    with closing(listening_socket(where.host, where.port)) as bound:
        served = ServedModel(name, Engine.open(request, store, name))
        for line in memory_lines(served.engine.with_memories(name).memories):
            say(f"serve: {line}")
        _answer_requests(served, access, bound, asked.json)


def _answer_requests(
    served: "ServedModel", access: "Access", bound: "socket", as_json: bool
) -> None:
    """Answer until a signal ends the process."""
    from memlm_cli.progress import not_working
    from stages.serving.app import application
    from stages.serving.server import address_of, make_server
    from stages.serving.worker import Worker

    def log(text: str) -> None:
        say(f"serve: {text}")

    def announce() -> None:
        address = address_of(bound)
        answer(json.dumps({"address": address, "model": served.name}) if as_json else address)

    worker = Worker()
    server = make_server(application(served, worker, access, log), announce)
    try:
        with resumable(STOPPED), not_working():
            server.run(sockets=[bound])
    finally:
        worker.close()


def _request(reference: str, reading: "ReadSettings", store: "Store") -> tuple[str, "Request"]:
    """The name of what is served, and the question that says how it is read."""
    from stages.inspection.settings import Request

    artifact = store.get(reference, "report", "model", "index", "neighbors")
    name = reference.rstrip("/").rpartition("/")[2]
    if artifact.kind != "report":
        return name, Request(source=artifact.reference, **dict(reading))
    if reading.report is not None:
        raise UsageError(f"{reference} is a report already: leave --report {reading.report} out.")
    settings = dict(reading) | {"report": None if reading.memory else artifact.reference}
    return name, Request(source=artifact.input("model").reference, **settings)
