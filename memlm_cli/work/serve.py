"""Work of `memlm serve`: a model with its memories answers over HTTP."""

import json
from contextlib import ExitStack, closing
from socket import socket

from memlm_cli.arguments import read_reference
from memlm_cli.console import answer, say
from memlm_cli.exit_codes import resumable
from memlm_cli.inspection_text import memory_lines
from memlm_cli.options import StoreOptions
from memlm_cli.progress import not_working
from pipelines.document_changes import DocumentStages
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.inspection.settings import ReadSettings, Request
from stages.serving.access import Access
from stages.serving.app import application
from stages.serving.changes import ChangingMemories, DocumentChanges
from stages.serving.engine import ServedMemories, answer_for
from stages.serving.served import ServedModel, Serving, check_model_name
from stages.serving.server import address_of, listening_socket, make_server
from stages.serving.settings import ServeSettings
from stages.serving.worker import Worker

STOPPED = "answers under way were finished or cancelled"


def serve(
    source: str | None, where: ServeSettings, reading: ReadSettings, *, store_options: StoreOptions
) -> None:
    """Carry out `memlm serve`."""
    access = Access.of(where)
    store = store_options.open_store()
    name, request = _request(read_reference(source), reading, store)
    check_model_name(name)
    # A port that is in use is found before the model is loaded, which takes long.
    with closing(listening_socket(where.host, where.port)) as bound, ExitStack() as stack:
        memories = ServedMemories.of(request, store, name)
        if where.admin_token_file is not None:
            memories.require_changeable()
        stages = DocumentStages(store, Execution(device=reading.device))
        changing = ChangingMemories.of(memories, stages, store)
        if where.admin_token_file is not None:
            stack.enter_context(changing.ledger.owned())
        serving = Serving(ServedModel(name, changing.open()))
        for line in memory_lines(serving.model.engine.reader(name).memories):
            say(f"serve: {line}")
        changes = None
        if where.admin_token_file is not None:
            changes = DocumentChanges(changing, serving, _log)
            stack.callback(changes.close)
            changes.start()
        _answer_requests(serving, access, bound, changes, store_options.json)


def _log(text: str) -> None:
    say(f"serve: {text}")


def _answer_requests(
    serving: Serving,
    access: Access,
    bound: socket,
    changes: DocumentChanges | None,
    as_json: bool,
) -> None:
    """Answer until a signal ends the process."""

    def announce() -> None:
        address = address_of(bound)
        content = {"address": address, "model": serving.model.name}
        answer(json.dumps(content) if as_json else address)

    worker = Worker(answer_for)
    documents = None if changes is None else changes.documents
    answered = application(serving, worker, access, _log, documents=documents)
    server = make_server(answered, announce)
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
