"""Kill a server at random moments while documents are added and deleted, and look at what is left.

    python -m tests.endurance.document_kills --kills 200 [--seed 0]

Each life of the server ends with SIGKILL, while requests arrive and jobs run. The next one must
list every document whose addition was accepted, and none whose deletion was. A deleted document is
never quoted. The artifacts that are served are whole, byte by byte. A change without an answer may
have happened or not. At the end all jobs are done, and nothing that earlier generations were made
of is left. Prints a JSON object; ends with 1 if anything was lost, or came back.
"""

import argparse
import json
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from stages.artifacts.store import Store
from tests.endurance.campaign.process import preload
from tests.stages.serving.document_store import BASE, NEAREST, document_index

TOKEN = "an-admin-token-of-a-test"
WORDS = ["the", "cat", "dog", "sees", "and", "runs", "hen", "a", "pig"]
DOCUMENTS = "/memories/small/documents"
NAMES = [f"document-{number}" for number in range(12)]
LONGEST_LIFE = 2.5
"""Seconds after which a server is killed at the latest, from its first answer."""
START_SECONDS = 60.0


def forked(work: Callable[[], object]) -> int:
    """A child process that does some work and ends."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return pid


def serve(folder: Path, port: int) -> None:
    """Serve the documents in a folder; called in a child."""
    from memlm_cli import app

    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    words = ["index/small", "--memory", NEAREST, "--port", str(port), "--device", "cpu"]
    token = ["--admin-token-file", str(folder / "token")]
    sys.argv = ["memlm", "serve", *words, *token, "--store", str(folder / "store")]
    app.main()


@dataclass
class Server:
    """One life of the server."""

    folder: Path
    port: int
    pid: int

    @classmethod
    def begin(cls, folder: Path) -> "Server":
        """Start it, and wait until it answers."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        server = cls(folder, port, forked(lambda: serve(folder, port)))
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            try:
                if server.ask("GET", "/health")[0] == 200:
                    return server
            except OSError:
                time.sleep(0.02)
        raise TimeoutError((folder / "log").read_text()[-2000:])

    def ask(self, method: str, path: str, content: Any = None) -> tuple[int, Any]:
        """Status and content of an answer. Raises: OSError or HTTPException without one."""
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            body = None if content is None else json.dumps(content)
            connection.request(method, path, body, headers)
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read() or b"null")
        finally:
            connection.close()

    def end(self, number: int) -> None:
        """Send a signal, and wait for the end."""
        os.kill(self.pid, number)
        os.waitpid(self.pid, 0)


@dataclass
class Expected:
    """What was promised: texts of the documents that are there, and names of which either holds."""

    there: dict[str, str] = field(default_factory=lambda: dict(BASE))
    unanswered: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)

    def change(self, server: Server, draw: random.Random) -> None:
        """Add or delete a document."""
        name = draw.choice([*NAMES, *BASE])
        self.unanswered.add(name)
        if name in self.there:
            status, _ = server.ask("DELETE", f"{DOCUMENTS}/{name}")
            if status == 202:
                del self.there[name]
        else:
            text = " ".join(draw.choices(WORDS, k=draw.randint(3, 30))) + f" {draw.random()}"
            status, _ = server.ask("POST", DOCUMENTS, {"name": name, "text": text})
            if status == 202:
                self.there[name] = text
        self.unanswered.discard(name)
        self.counts[str(status)] += 1

    def faults(self, server: Server) -> list[str]:
        """What a new life has lost, or brought back."""
        _, listing = server.ask("GET", DOCUMENTS)
        listed = {entry["name"] for entry in listing["data"]}
        faults = []
        for name in sorted((listed ^ self.there.keys()) - self.unanswered):
            faults.append(f"{name} {'came back' if name in listed else 'is lost'}")
        for name in self.unanswered:
            # From here on the change has happened, or it has not.
            if name in listed:
                self.there.setdefault(name, "")
            else:
                self.there.pop(name, None)
        self.unanswered.clear()
        fields = {"prompt": "the pig sees", "max_tokens": 2, "memlm": {"attribution": 16}}
        status, answer = server.ask("POST", "/v1/completions", fields)
        if status != 200:
            return [*faults, f"a completion was answered with {status}"]
        (choice,) = answer["choices"]
        contexts = [one for token in choice["memlm"]["tokens"] for one in token["contexts"]]
        quoted = {one["document"] for one in contexts}
        faults += [f"{name} was quoted" for name in quoted - self.there.keys()]
        self.counts["quoted"] += len(quoted)
        return faults


def damage(folder: Path) -> list[str]:
    """What is wrong with the artifacts that are served."""
    store = Store(folder / "store")
    faults = []
    for ledger in (folder / "store" / ".serving").glob("*/ledger.json"):
        for reference in json.loads(ledger.read_bytes())["artifacts"].values():
            try:
                store.check_files(store.open(reference), every_byte=True)
            except Exception as error:
                faults.append(f"{reference}: {error}")
    return faults


def await_jobs(server: Server) -> Counter[str]:
    """Wait until all jobs have ended; returns the number of each outcome."""
    while True:
        _, jobs = server.ask("GET", "/jobs")
        owed = [
            job["ended"] is None or (job["action"] == "delete" and _owes(server, job))
            for job in jobs["data"]
        ]
        if not any(owed):
            return Counter(job["state"] for job in jobs["data"])
        time.sleep(0.2)


def _owes(server: Server, job: dict[str, Any]) -> bool:
    """Whether the receipt of a deletion that made a generation is not written yet."""
    if job["state"] != "done":
        return False
    _, described = server.ask("GET", f"/jobs/{job['id']}")
    return described["receipt"] is None


def killed(folder: Path, kills: int, draw: random.Random) -> dict[str, Any]:
    """Kill servers of a folder's documents; returns counts and faults."""
    expected = Expected()
    faults = list[str]()
    for _ in range(kills):
        server = Server.begin(folder)
        faults += expected.faults(server)
        end = time.monotonic() + draw.uniform(0, LONGEST_LIFE)
        # The last change of a life is under way when the signal comes.
        alarm = forked(partial(_kill_at, end, server.pid))
        try:
            while True:
                expected.change(server, draw)
                time.sleep(draw.uniform(0, 0.3))
        except (OSError, HTTPException):
            pass
        os.waitpid(alarm, 0)
        os.waitpid(server.pid, 0)
        faults += damage(folder)
        if faults:
            break
    server = Server.begin(folder)
    faults += expected.faults(server)
    outcomes = await_jobs(server)
    faults += expected.faults(server)
    server.end(signal.SIGTERM)
    faults += damage(folder)
    kept = [one.reference for one in Store(folder / "store").artifacts()]
    return {
        "kills": kills,
        "answers": dict(expected.counts),
        "jobs": dict(outcomes),
        "artifacts": sorted(kept),
        "faults": faults[:10],
    }


def _kill_at(end: float, pid: int) -> None:
    time.sleep(max(0.0, end - time.monotonic()))
    os.kill(pid, signal.SIGKILL)


def prepared(folder: Path) -> None:
    """Make the store and the token that a server reads; in a child, since it computes."""

    def work() -> None:
        index = document_index(folder)
        Store(folder / "store").name(index, "small")

    _, status = os.waitpid(forked(work), 0)
    assert status == 0, "the store could not be made"
    token = folder / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    preload()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        prepared(folder)
        result = killed(folder, asked.kills, random.Random(asked.seed))
    print(json.dumps(result, indent=1))
    return 1 if result["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
