"""Documents that come and go while an address answers: what is hidden, served, and left behind."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from pipelines.document_changes import DocumentStages
from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.evaluate import Evaluate, EvaluateConfig
from stages.forgetting.question import DocumentQuestion
from stages.forgetting.search import find_holders
from stages.index import BuildIndex
from stages.inspection.settings import Request
from stages.reporting import Silent
from stages.search.config import IndexConfig
from stages.serving import changes as changes_module
from stages.serving.changes import ChangingMemories
from stages.serving.engine import Engine, ServedMemories
from stages.text.config import TokenizeConfig
from stages.tokenize import Tokenize
from stages.update import UpdateConfig, UpdateDatastore
from tests.stages.serving.address import Address, Reply, serving
from tests.stages.serving.conftest import WINDOW
from tests.stages.serving.document_store import BASE, NEAREST, document_index
from tests.stages.serving.test_limits import until

ADMIN = "an-admin-token-of-a-test"
EXACT = "exact:matches=20,temperature=0.7,lambda=0.3"
SECRET = "pig pig dog hen hen dog pig"
SECONDS = 60


class Changing(Address):
    """An address whose documents change."""

    def asked(self, method: str, path: str, content: Any = None, token: str = ADMIN) -> Reply:
        body = None if content is None else json.dumps(content).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        return self.ask(method, path, body, headers)

    def add(self, name: str, text: str) -> Reply:
        return self.asked("POST", "/memories/small/documents", {"name": name, "text": text})

    def delete(self, name: str) -> Reply:
        return self.asked("DELETE", f"/memories/small/documents/{name}")

    def names(self) -> list[str]:
        reply = self.asked("GET", "/memories/small/documents")
        return [entry["name"] for entry in reply.json["data"]]

    def ended(self, reply: Reply) -> dict[str, Any]:
        """The job of an accepted change, when it has ended, with its receipt."""
        assert reply.status == 202, reply.body
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            job = self.asked("GET", reply.headers["location"]).json
            owes = job["action"] == "delete" and job["state"] == "done" and not job["receipt"]
            if job["ended"] and not owes:
                return dict(job)
            time.sleep(0.02)
        raise AssertionError(f"{job} did not end: {self.log}")


@contextmanager
def changing(request: Request, store: Store, *, works: bool = True) -> Iterator[Changing]:
    """A server of what a request reads; `works`: whether its jobs are done."""
    memories = ServedMemories.of(request, store, "small")
    memories.require_changeable()
    parts = ChangingMemories.of(memories, DocumentStages(store, Execution(device="cpu")), store)
    log: list[str] = []
    with (
        parts.ledger.owned(),
        serving(parts.open(), changing=parts, admin=ADMIN, works=works) as address,
    ):
        yield Changing(*address)
        log += address.log
    assert log == []


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return document_index(tmp_path_factory.mktemp("documents"))


@pytest.fixture
def place(documents: Artifact, tmp_path: Path) -> Store:
    """A copy of the store, to be changed."""
    copytree(documents.store.root, tmp_path / "store")
    return Store(tmp_path / "store")


def nearest(documents: Artifact) -> Request:
    return Request(source=documents.reference, memory=(NEAREST,), device="cpu")


def exact(documents: Artifact, store: Store) -> Request:
    corpus = documents.find("corpus")
    config = IndexConfig(index="exact")
    index = make(BuildIndex(), config, {"source": corpus.reference}, store, Execution()).artifact
    model = documents.find("encoder").reference
    return Request(source=model, memory=(EXACT,), index=index.reference, device="cpu")


def scores(address: Address, text: str = SECRET) -> list[float]:
    """Log-probabilities of the tokens of a text."""
    reply = address.complete(prompt=text, echo=True, logprobs=1, max_tokens=0)
    assert reply.status == 200, reply.body
    return list(reply.json["choices"][0]["logprobs"]["token_logprobs"][1:])


def quoted(address: Address, text: str = SECRET) -> set[str]:
    """Names of the documents that speak."""
    asked = {"prompt": text, "max_tokens": 1, "memlm": {"attribution": 16}, "seed": 1}
    (choice,) = address.complete(**asked).json["choices"]
    tokens = choice["memlm"]["tokens"]
    return {one["document"] for token in tokens for one in token["contexts"]}


@pytest.mark.parametrize("kind", ["nearest", "exact"])
def test_a_document_is_added_deleted_at_once_and_forgotten(
    documents: Artifact, place: Store, kind: str
) -> None:
    request = nearest(documents) if kind == "nearest" else exact(documents, place)
    with changing(request, place) as address:
        before = scores(address)
        job = address.ended(address.add("secret", SECRET))
        assert (job["state"], job["generation"]) == ("done", 1), job["message"]
        assert address.names() == [*BASE, "secret"]
        assert sum(scores(address)) > sum(before)
        assert "secret" in quoted(address)

        deleted = address.delete("secret")
        assert "secret" not in address.names()
        assert "secret" not in quoted(address)
        assert scores(address) == pytest.approx(before, abs=1e-6)
        receipt = address.ended(deleted)["receipt"]
        assert scores(address) == pytest.approx(before, abs=1e-6)
        assert receipt["remains"] == [] and receipt["removed"]
        assert address.complete(prompt="a").json["memlm"]["generation"] == 2
    # Neither its text nor its tokens are left in any file.
    assert find_holders(place, DocumentQuestion(text=SECRET, copied=8), Silent()).holdings == ()
    files = [path for path in place.root.rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in path.read_bytes() for path in files)


def test_what_is_served_equals_what_the_commands_make(documents: Artifact, place: Store) -> None:
    copytree(place.root, place.root.parent / "offline")
    with changing(nearest(documents), place) as address:
        address.ended(address.add("secret", SECRET))
        address.ended(address.delete("bob"))
        ids = documents.find("corpus").zarr("tokens.zarr")["test/ids"][:WINDOW].tolist()
        start = address.served.engine.start
        reply = address.complete(prompt=[[start, *ids]], echo=True, logprobs=1, max_tokens=0)
    (choice,) = reply.json["choices"]

    store = Store(place.root.parent / "offline")
    file = place.root.parent / "secret.jsonl"
    file.write_text(json.dumps({"name": "secret", "text": SECRET}) + "\n")
    corpus = documents.find("corpus").reference
    added = _made(
        store, Tokenize(), TokenizeConfig(tokenizer="given"), tokenizer=corpus, train=[str(file)]
    )
    datastore = documents.input("datastore").reference
    first = _made(store, UpdateDatastore(), UpdateConfig(), source=datastore, add=added)
    config = UpdateConfig(forget=("bob",))
    second = _made(store, UpdateDatastore(), config, source=first)
    index = _made(store, BuildIndex(), IndexConfig(index="flat"), source=second, update="none")
    evaluated = EvaluateConfig(memory=(NEAREST,), save_token_scores=True)
    report = store.get(_made(store, Evaluate(), evaluated, source=index))
    want = report.zarr("scores.zarr")["logp"][:WINDOW].tolist()
    assert choice["logprobs"]["token_logprobs"][1:] == pytest.approx(want, abs=1e-5)


def test_exact_matches_draft_the_text_that_one_token_at_a_time_gives(
    documents: Artifact, place: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"prompt": "the pig runs and the", "max_tokens": 12, "logprobs": 1}
    passes = 0
    read = Engine.next_log_probs

    def counted(*given: Any) -> Any:
        nonlocal passes
        passes += 1
        return read(*given)

    monkeypatch.setattr(Engine, "next_log_probs", counted)

    def written(address: Address) -> list[dict[str, Any]]:
        ways = ({"temperature": 0}, {"seed": 3}, {"seed": 5, "stop": "hen"})
        return [address.complete(**asked, **way).json["choices"][0] for way in ways]

    with changing(exact(documents, place), place, works=False) as address:
        drafted = written(address)
        fewer = passes
        passes = 0
        monkeypatch.setattr(Engine, "draft", lambda *_: [])
        alone = written(address)
    assert fewer < passes
    for one, other in zip(drafted, alone, strict=True):
        assert one["text"] == other["text"] and one["finish_reason"] == other["finish_reason"]
        numbers = (choice["logprobs"]["token_logprobs"] for choice in (one, other))
        assert next(numbers) == pytest.approx(next(numbers), abs=1e-5)


def _made(store: Store, stage: Any, config: Any, **references: Any) -> str:
    return make(stage, config, references, store, Execution(device="cpu")).artifact.reference


@pytest.mark.parametrize("kind", ["nearest", "exact"])
def test_a_restart_keeps_what_was_promised(documents: Artifact, place: Store, kind: str) -> None:
    request = nearest(documents) if kind == "nearest" else exact(documents, place)
    bob = BASE["bob"]
    with changing(request, place, works=False) as address:
        assert "bob" in quoted(address, bob)
        assert address.add("secret", SECRET).status == 202
        assert address.delete("bob").status == 202
        hidden = scores(address, bob)
    # Without anybody who may change documents, too.
    stages = DocumentStages(place, Execution(device="cpu"))
    seen = ChangingMemories.of(ServedMemories.of(request, place, "small"), stages, place)
    with serving(seen.open()) as address:
        assert "bob" not in quoted(address, bob)
        assert scores(address, bob) == pytest.approx(hidden, abs=1e-6)
    with changing(request, place) as address:
        assert "bob" not in quoted(address, bob)
        jobs = address.asked("GET", "/jobs").json["data"]
        for job in jobs:
            address.ended(Reply(202, {"location": f"/jobs/{job['id']}"}, b""))
        assert address.names() == ["anna", "carl", "secret"]
        assert {"bob"}.isdisjoint(quoted(address, bob))
    with changing(request, place) as address:
        assert address.names() == ["anna", "carl", "secret"]
        assert address.served.engine.generation == 2


def test_what_is_deleted_while_it_is_added_never_comes(
    documents: Artifact, place: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    change = DocumentStages.change

    def waits(*given: Any) -> Any:
        assert goes_on.wait(SECONDS)
        return change(*given)

    monkeypatch.setattr(DocumentStages, "change", waits)
    with changing(nearest(documents), place) as address:
        added = address.add("secret", SECRET)
        until(lambda: address.asked("GET", "/jobs").json["data"][0]["state"] == "running")
        deleted = address.delete("secret")
        assert address.names() == list(BASE)
        copytree(place.root, tmp_path / "killed")
        goes_on.set()
        assert address.ended(added)["state"] == "done"
        assert address.names() == list(BASE) and "secret" not in quoted(address)
        assert address.ended(deleted)["receipt"]["remains"] == []
    # The same, had the process been killed meanwhile.
    killed = Store(tmp_path / "killed")
    with changing(nearest(documents), killed) as address:
        assert address.names() == list(BASE)
        jobs = address.asked("GET", "/jobs").json["data"]
        assert [job["state"] for job in jobs if job["action"] == "add"] == ["cancelled"]
        texts = list(killed.root.glob(".serving/*/texts/*"))
        assert texts == []


def test_changes_that_are_refused(documents: Artifact, place: Store) -> None:
    def refused(reply: Reply) -> tuple[int, str | None]:
        return reply.status, reply.json["error"]["code"]

    with changing(nearest(documents), place, works=False) as address:
        path = "/memories/small/documents"
        assert refused(address.get(path)) == (401, "invalid_admin_key")
        assert refused(address.asked("GET", path, token="x" * 20)) == (401, "invalid_admin_key")
        assert refused(address.asked("GET", "/memories/none/documents"))[1] == "memory_not_found"
        assert refused(address.asked("GET", "/jobs/none"))[1] == "job_not_found"
        assert refused(address.asked("GET", f"{path}?limit=0"))[0] == 400
        assert refused(address.add("anna", "a cat")) == (409, "document_exists")
        assert refused(address.add("new", " \n ")) == (400, "document_empty")
        for name in ("", " a", "a\nb", "a" * 300):
            assert refused(address.add(name, "a cat"))[0] == 400
        assert refused(address.add("new", "a" * (1 << 20)))[0] == 413
        for name in ("eve", "..%2f..%2fstore", "%2e%2e", ""):
            assert refused(address.delete(name)) == (404, "document_not_found")
        assert address.add("new/../x", "a cat").status == 202
        assert refused(address.add("new/../x", "a dog")) == (409, "document_exists")
        assert address.delete("new/../x").json["state"] == "done"
        assert address.delete("anna").status == 202
        assert refused(address.add("anna", "a cat")) == (409, "document_exists")
        assert refused(address.delete("anna")) == (404, "document_not_found")
        assert address.delete("bob").status == 202
        assert refused(address.delete("carl")) == (409, "last_document")
        assert address.names() == ["carl"]


def test_a_store_that_cannot_be_written_is_said(
    documents: Artifact, place: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    with changing(nearest(documents), place, works=False) as address:
        monkeypatch.setattr("stages.serving.ledger.write_inside", fails)
        reply = address.add("new", "a cat")
        assert (reply.status, reply.json["error"]["code"]) == (503, "store_not_writable")
        reply = address.delete("anna")
        assert (reply.status, reply.json["error"]["code"]) == (503, "store_not_writable")
        assert address.names() == list(BASE)


def test_a_job_that_fails_says_why_and_its_document_stays_hidden(
    documents: Artifact, place: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with changing(nearest(documents), place) as address:
        with monkeypatch.context() as patched:
            patched.setattr("pipelines.document_changes.make", fails)
            job = address.ended(address.delete("bob"))
            assert job["state"] == "failed" and "No space" in job["message"]
        assert "bob" not in address.names() and "bob" not in quoted(address, BASE["bob"])
        assert address.ended(address.delete("bob"))["state"] == "done"
        assert address.names() == ["anna", "carl"]


def test_a_request_keeps_its_generation_until_it_ends(
    documents: Artifact, place: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes_module, "REQUEST_SECONDS", 0.0)
    with changing(nearest(documents), place) as address:
        first = address.served.engine
        with first.reading("small", first.text.prompt_ids("a cat")) as text:
            (before,) = first.next_log_probs("small", [(text, ())])
        address.ended(address.add("secret", SECRET))
        with first.reading("small", first.text.prompt_ids("a cat")) as text:
            (after,) = first.next_log_probs("small", [(text, ())])
    assert before.tolist() == after.tolist()


def test_memories_that_cannot_change_are_told(documents: Artifact, place: Store) -> None:
    from stages.errors import UsageError

    pointers = Request(
        source=documents.reference, memory=("external:k=5,pointers=2,temperature=2,lambda=0.4",)
    )
    alone = Request(source=documents.find("encoder").reference, memory=("none",))
    for request, word in ((pointers, "external"), (alone, "none of its memories")):
        with pytest.raises(UsageError, match=word):
            ServedMemories.of(request, place, "small").require_changeable()


def test_one_process_changes_documents(documents: Artifact, place: Store) -> None:
    from stages.errors import BusyError

    with (
        changing(nearest(documents), place, works=False),
        pytest.raises(BusyError, match="made by"),
        changing(nearest(documents), place),
    ):
        pass
