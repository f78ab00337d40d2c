"""Many clients ask one server for some time: how long answers take, and whether its memory grows.

    python -m tests.endurance.serving REF --store STORE [--clients 50 --seconds 600]

Clients are threads of this process. Each asks again as soon as it is answered: for text, for the
scores of a prompt, for a stream, for several prompts with the passages behind them. One in ten
leaves in the middle of its stream. An answer that the server gave up for its length (504, or a
stream that is cut off) is counted as late. Prints a JSON object; ends with 1 if one is wrong.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

TIMEOUT = 180.0
UNANSWERED = (429, 504)
"""Codes of a server that has too much to do."""
WORDS = ["the", "cat", "dog", "sees", "and", "runs", "hen", "a", "pig"]
LEAVES = 0.1
SAMPLES = 20
"""Times at which the memory of the server is read."""


@dataclass
class Load:
    """What clients saw, by the kind of request."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    statuses: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    wrong: list[str] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)
    """Memory of the server: before the first request, then at even times."""

    def summary(self) -> dict[str, Any]:
        """Percentiles of seconds by kind, counts, and the memory of the server."""
        times = {
            kind: {
                "answers": len(seconds),
                "p50": round(percentile(seconds, 50), 3),
                "p99": round(percentile(seconds, 99), 3),
            }
            for kind, seconds in sorted(self.seconds.items())
        }
        return {
            "seconds": times,
            "statuses": dict(self.statuses),
            "tokens": self.tokens,
            "megabytes": self.megabytes,
            "wrong": self.wrong[:5],
        }


def percentile(values: Sequence[float], percent: int) -> float:
    """The value below which a share of the values lies.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 50)
    3.0
    """
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


@contextmanager
def server(reference: str, store: Path) -> Iterator[tuple[str, int]]:
    """A server in a process of its own: its host with the port, and the number of the process."""
    words = [sys.executable, "-m", "memlm_cli", "serve", reference, "--port", "0"]
    words += ["--store", str(store), "--device", "cpu"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip().removeprefix("http://"), process.pid
        process.terminate()


def requests(draw: random.Random) -> tuple[str, dict[str, Any]]:
    """A kind of request, and its fields."""
    prompt = " ".join(draw.choices(WORDS, k=draw.randint(1, 12)))
    kinds: dict[str, dict[str, Any]] = {
        "text": {"prompt": prompt, "max_tokens": 12},
        "scores": {"prompt": prompt, "max_tokens": 0, "echo": True, "logprobs": 2},
        "stream": {"prompt": prompt, "max_tokens": 12, "stream": True},
        "prompts": {"prompt": [prompt] * 4, "max_tokens": 6, "memlm": {"attribution": 2}},
    }
    kind = draw.choice(list(kinds))
    return kind, {**kinds[kind], "seed": draw.randrange(100)}


def ask_until(end: float, host: str, load: Load, draw: random.Random, lock: Any) -> None:
    """A client: asks until the time is over."""
    while time.monotonic() < end:
        kind, fields = requests(draw)
        begun = time.monotonic()
        connection = HTTPConnection(host, timeout=TIMEOUT)
        try:
            connection.request(
                "POST", "/v1/completions", json.dumps(fields), {"Content-Type": "application/json"}
            )
            answer = connection.getresponse()
            if kind == "stream" and draw.random() < LEAVES:
                answer.read(1)
                with lock:
                    load.statuses["left"] += 1
                continue
            body = answer.read()
        except HTTPException:
            with lock:
                load.statuses["cut off"] += 1
            continue
        except OSError as error:
            with lock:
                load.wrong.append(repr(error))
            continue
        finally:
            connection.close()
        with lock:
            _note(load, kind, answer.status, body, time.monotonic() - begun)
        if answer.status == 429:
            time.sleep(float(answer.headers["Retry-After"]) * draw.random())


def _note(load: Load, kind: str, status: int, body: bytes, seconds: float) -> None:
    """Count an answer, and look at it."""
    load.statuses[str(status)] += 1
    if status in UNANSWERED:
        return
    load.seconds[kind].append(seconds)
    if status != 200:
        load.wrong.append(f"{kind}: {status} {body[:200]!r}")
    elif kind == "stream" and not body.endswith(b"data: [DONE]\n\n"):
        load.wrong.append(f"a stream without an end: {body[-100:]!r}")
    elif kind != "stream":
        load.tokens += json.loads(body)["usage"]["total_tokens"]


def memory_of(process: int) -> float:
    """Megabytes that a process holds in memory."""
    status = Path(f"/proc/{process}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return round(int(found[1]) / 1024, 1)


def loaded(reference: str, store: Path, clients: int, seconds: float) -> Load:
    """Let clients ask a server for some time."""
    load, lock = Load(), threading.Lock()
    with server(reference, store) as (host, process):
        load.megabytes.append(memory_of(process))
        end = time.monotonic() + seconds
        threads = [
            threading.Thread(target=ask_until, args=(end, host, load, random.Random(seed), lock))
            for seed in range(clients)
        ]
        for thread in threads:
            thread.start()
        for _ in range(SAMPLES):
            time.sleep(seconds / SAMPLES)
            load.megabytes.append(memory_of(process))
        for thread in threads:
            thread.join()
    return load


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reference", metavar="REF")
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=600.0)
    asked = parser.parse_args()
    load = loaded(asked.reference, asked.store, asked.clients, asked.seconds)
    print(json.dumps(load.summary(), indent=1))
    return 1 if load.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
