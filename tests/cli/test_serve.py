"""`memlm serve`: what it says, what it answers with, and how it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.evaluate import Evaluate, EvaluateConfig
from tests.cli.conftest import Memlm
from tests.stages.serving.document_store import document_index
from tests.stages.small_text import built_index, text_model, text_tokens

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

READING = "external:k=5,temperature=2,lambda=0.4"
SECONDS = 60
ADMIN = "the-token-of-an-admin"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("served")
    store = Store(folder / "store")
    return built_index(store, text_model(store, text_tokens(store, folder, "bpe")))


@pytest.fixture(scope="module")
def report(index: Artifact) -> Artifact:
    config, references = EvaluateConfig(memory=(READING,)), {"source": index.reference}
    made = make(Evaluate(), config, references, index.store, Execution(device="cpu")).artifact
    index.store.name(made, "docs")
    return made


@contextmanager
def started(store: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A server in a process of its own, and what it says when it takes requests."""
    command = [sys.executable, "-m", "memlm_cli", "serve", *words, "--port", "0", "--json"]
    process = subprocess.Popen(
        [*command, "--store", str(store), "--device", "cpu"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    timer = threading.Timer(SECONDS, process.kill)
    timer.start()
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())
    finally:
        timer.cancel()
        process.kill()
        process.communicate()


def asked(address: str, method: str, path: str, content: Any = None, token: str = ADMIN) -> Any:
    connection = HTTPConnection(address.removeprefix("http://"), timeout=SECONDS)
    body = None if content is None else json.dumps(content)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    connection.request(method, path, body, headers)
    found = json.loads(connection.getresponse().read())
    connection.close()
    return found


def test_a_report_is_served_with_its_memories_until_a_signal(report: Artifact) -> None:
    with started(report.store.root, "report/docs") as (process, said):
        assert said["model"] == "docs"
        (docs, plain) = asked(said["address"], "GET", "/v1/models")["data"]
        assert (docs["id"], plain["id"]) == ("docs", "docs:plain")
        (reading,) = docs["memlm"]["readings"]
        assert (reading["k"], reading["lambda"], reading["numbers"]) == (5, 0.4, "reported")
        fields = {"prompt": "the cat", "max_tokens": 3, "seed": 1, "memlm": {"attribution": 1}}
        answer = asked(said["address"], "POST", "/v1/completions", fields)
        assert answer["choices"][0]["memlm"]["tokens"][0]["memories"][0]["name"] == "datastore"
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=SECONDS)
        assert process.returncode == 143
        assert "datastore: external" in err and "terminated; answers" in err


def test_a_deleted_document_stays_deleted_after_a_kill(tmp_path: Path) -> None:
    index = document_index(tmp_path)
    token = tmp_path / "token"
    token.write_text(ADMIN)
    token.chmod(0o600)
    words = (index.reference, "--memory", READING, "--admin-token-file", str(token))
    documents = f"/memories/{index.id}/documents"
    with started(index.store.root, *words) as (process, said):
        job = asked(said["address"], "POST", documents, {"name": "new", "text": "a hen runs"})
        assert job["state"] == "waiting"
        asked(said["address"], "DELETE", f"{documents}/bob")
        process.kill()
    with started(index.store.root, *words) as (process, said):
        listed = asked(said["address"], "GET", documents)["data"]
        assert [entry["name"] for entry in listed] == ["anna", "carl", "new"]
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=SECONDS)
        assert process.returncode == 143, err


def test_what_cannot_be_served_is_refused(
    memlm: Memlm, index: Artifact, report: Artifact, tmp_path: Path
) -> None:
    def refused(*words: object) -> tuple[int, str]:
        port = () if "--port" in words else ("--port", 0)
        ended = memlm("serve", *words, *port, "--store", index.store.root, "--device", "cpu")
        assert ended.out == ""
        return ended.code, ended.err

    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    token.chmod(0o644)
    code, err = refused(index.reference, "--host", "0.0.0.0")
    assert code == 2 and "--token-file" in err
    code, err = refused(index.reference, "--token-file", token)
    assert code == 2 and "chmod 600" in err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, err = refused(index.reference, "--port", taken.getsockname()[1])
    assert code == 2 and "in use" in err
    code, err = refused("report/docs", "--report", report.reference)
    assert code == 2 and "leave --report" in err
    token.chmod(0o600)
    model = index.find("encoder").reference
    code, err = refused(model, "--admin-token-file", token)
    assert code == 2 and "cannot change" in err
    code, err = refused("report/none")
    assert code == 4
    code, err = refused(index.find("corpus").reference)
    assert code == 4 and "tokens" in err
    index.store.name(index, "none")
    code, err = refused("index/none", "--memory", READING)
    assert code == 2 and "another name" in err
