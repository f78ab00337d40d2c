"""The wording of messages, in one place: `messages.txt`, which `MEMLM_UPDATE_SNAPSHOTS=1 pytest
FILE` writes.

Other tests assert exit codes, and the names and figures that a message must have.
"""

import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from memlm_cli.console import printable
from memlm_cli.exit_codes import failure_of, resumable
from memlm_cli.progress import Work
from stages.interrupts import Terminated
from tests.builders.layer_options import ENTRIES, KEYS, NGRAMS, SIGNAL, chosen
from tests.cli.conftest import Memlm
from tests.snapshot import kept

WORDING = Path(__file__).parent / "messages.txt"


class Unread(io.StringIO):
    """Standard input that must not be read."""

    def __iter__(self) -> "Unread":
        raise AssertionError("standard input was read")

    def read(self, size: int | None = -1) -> str:
        raise AssertionError("standard input was read")


GRID = ",".join(
    f"{name}=" + "/".join(f"{number / unit:g}" for number in range(1, 301))
    for name, unit in (("external:k", 1), ("temperature", 1), ("lambda", 1000))
)
"""Of 300 numbers each."""


def attention(settings: dict[str, object]) -> list[str]:
    return ["train", "tokens/x", "--backbone", "transformer-xl", *chosen("attention", settings)]


def layer(place: str, settings: dict[str, object]) -> list[str]:
    return ["train", "tokens/x", "--backbone", "transformer", *chosen(place, settings)]


REFUSED = [
    ["trian"],
    ["train", "--stpes", "3"],
    ["evaluate", "--lamda", "0.3"],
    ["evaluate", "--exclude", "slf"],
    ["train", "--kind"],
    ["evaluate", "--plann"],
    ["train", "--dry-run"],
    ["train", "--set", "layers=abc"],
    ["train", "--steps", "many"],
    ["train", "--steps", "-3"],
    ["train", "--lr", "nan"],
    ["train", "--method", "spalms"],
    ["train", "--model", "tinny"],
    ["train", "--backbone", "nope"],
    ["train", "--steps", "1", "--epochs", "1"],
    ["train", "--set", "optimizer.lrr=1"],
    ["train", "--backbone", "memformer", "--set", "model.attention.name=x"],
    ["train", "--set", "model.dropuot=0.1"],
    ["train", "--set", "droput=0.1"],
    ["train", "--set", "steps"],
    ["train", "--set", f"seed={2**64}"],
    ["train", "--method", "trime", "--set", "memory.temperature=1e-30"],
    ["train", "--set", f"model.width={2**62}"],
    ["train", "--batch-tokens", str(2**62)],
    ["evaluate", "--memory", GRID],
    ["train", "--set", "steps=" + "[" * 50000],
    ["train", "--store", ""],
    ["generate", "--prompt", "a\udcffb"],
    ["train", "--config", "nowhere.toml"],
    ["train", "--name", "0123456789ab"],
    ["train", "--name", "n" * 101],
    ["train", "--name", ""],
    ["train", "--model", ""],
    ["build-datastore", "--workers", "0"],
    ["train", "--checkpoint-seconds", "nan"],
    ["build-datastore", "--fraction", "nan"],
    ["build-datastore", "--dtype", "float8"],
    ["build-datastore", "--set", "contxt=3"],
    ["build-index", "--index", "ivfpq"],
    ["build-index", "--recall", "all"],
    ["build-index", "--recall", "-1"],
    ["precompute-neighbors", "--exclude", f"window:{10**20}"],
    ["precompute-neighbors", "--queries", ""],
    ["precompute-neighbors", "--queries", "train,,valid"],
    ["precompute-neighbors", "--k", "0"],
    ["pack-batches", "--k", "0"],
    ["pack-batches", "--segment-length", "-8"],
    ["pack-batches", "--seed", "-1"],
    ["pack-batches", "--bm25", "bm25l"],
    ["evaluate", "--memory", "extrenal:k=3"],
    ["evaluate", "--score", "last"],
    ["evaluate", "--reset", "line"],
    ["evaluate", "--set", "score=lastword"],
    ["evaluate", "--set", "reset=always"],
    ["run", "quikstart"],
    ["run", "knn-lm-wikitext2"],
    ["presets", "tinny"],
    ["presets", "nowhere.toml"],
    ["artifacts", "list", "modle"],
    ["list"],
    ["show", "model/mine"],
    ["rm", "tokens/a b"],
    ["plan"],
    ["plan", "--json", "quickstart"],
    ["plan", "report", "report/x"],
    ["plan", "quickstar"],
    ["plan", "train", "--stepz", "1"],
    ["tokenize", "a.txt", "--vocab-size", "9" * 23],
    ["tokenize", "a.txt", "--vocab-size", "many"],
    ["tokenize", "a.txt", "--min-count", "2"],
    ["tokenize", "a.txt", "--max-record-bytes", "0"],
    ["tokenize", "a.txt", "--split", "1"],
    ["train", "tokens/x", "--mem-length", "8"],
    ["train", "tokens/x", "--backbone", "lstm", "--mem-length", "8"],
    ["train", "tokens/x", "--model", "wikitext2-8x128", "--mem-length", "0"],
    ["train", "tokens/x", "--set", "model.backbone=lstm", "--mem-length", "8"],
    ["train", "tokens/x", "--method", "spalm", "--mem-length", "-1"],
    ["try", "a.txt", "--minutes", "0"],
    ["try", "a.txt", "--minutes", "nan"],
    ["try", "a.txt", "--split", "0.9,0.1"],
    ["try", "a.txt", "--set", "model.stpes=3"],
    ["try", "a.txt", "--set", "trime.steps=0"],
    ["try", "a.txt", "--set", "modle.steps=3"],
    ["try", "a.txt", "--set", "model=3"],
    ["try", "a.txt", "--set", "steps"],
    attention(SIGNAL | {"basis": 7}),
    attention(SIGNAL | {"layers": "[4]"}),
    attention(ENTRIES | {"longest_distance": 9}),
    attention({"name": "memsizer", "slots": 3}),
    layer("lookup", NGRAMS | {"orders": "[1, 2]"}),
    layer("lookup", NGRAMS | {"layers": "[3]"}),
    layer("lookup", NGRAMS | {"slot": 5}),
    layer("feed_forward", KEYS | {"neighbors": 5}),
    layer("feed_forward", KEYS | {"name": "memory-plus", "neighbors": 5}),
    layer("feed_forward", KEYS | {"layers": "[3]"}),
    layer("feed_forward", KEYS | {"query_width": 5}),
    layer("feed_forward", KEYS | {"sub_key": 5}),
]
"""Command lines that make no sense."""


KNOWN = re.compile(r"known: [^()]*\b")
"""A list that grows with every part."""


def shown(words: list[str]) -> str:
    """The words of a command in a line, long ones cut short."""
    return shlex.join(word if len(word) < 60 else f"{word[:50]}…" for word in words)


def refusals(memlm: Memlm) -> Iterator[str]:
    """What each command line is answered, which nothing is read or written for."""
    for words in REFUSED:
        ended = memlm(*words, stdin=Unread())
        assert (ended.code, ended.out, "Traceback" in ended.err) == (2, "", False), (words, ended)
        said = KNOWN.sub("known: …", " ".join(ended.err.split()))
        yield f"$ memlm {printable(shown(words))}\n{said}\n"


def progress() -> Iterator[str]:
    """A line of work under way, at 30 s and long without news; and what a stopped command ends
    with.
    """
    now = 0.0
    work = Work(0, 1000, "steps", lambda: now)
    now = 30.0
    work.report(30, {"loss": 4.25, "tokens_per_second": 6670.4})
    yield f"{work.line()}\n"
    now = 2000.0
    yield f"{work.line()}\n"
    yield failure_of(Terminated()).message + "\n"
    try:
        with resumable():
            raise KeyboardInterrupt
    except KeyboardInterrupt as stopped:
        yield failure_of(stopped).message + "\n"


@pytest.mark.timeout(600)
def test_messages_are_worded_as_they_were(memlm: Memlm) -> None:
    text = "\n".join(refusals(memlm)) + "\n" + "\n".join(progress())
    assert text.splitlines() == kept(WORDING, text).splitlines()
