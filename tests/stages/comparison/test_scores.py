"""The command that makes a report again with token scores."""

import shlex
from itertools import pairwise
from types import SimpleNamespace

import pytest

from stages.artifacts.manifest import InputRecord
from stages.comparison.scores import evaluation_command
from tests.test_docs import options_of

SETTINGS = {
    **{"split": "valid", "memory": [], "tune_split": None, "context": 8, "stride": 8, "mem_length": None},
    **{"gate_k": None, "score": "all", "reset": "none"},
}
WINDOWS = ["--context", "8", "--stride", "8"]
COUNTED = ["--score", "all", "--reset", "none"]


def command(roles: dict[str, str], **settings: object) -> list[str]:
    inputs = {
        role: InputRecord(kind=where.partition("/")[0], id=where[-12:], digest="") for role, where in roles.items()
    }
    words = evaluation_command(SimpleNamespace(manifest=SimpleNamespace(inputs=inputs), config=SETTINGS | settings))
    parts = shlex.split(words)
    assert {word for word in parts if word.startswith("--")} <= options_of(parts)
    return parts[2:]


def ref(kind: str, digit: int) -> str:
    return f"{kind}/{str(digit) * 12}"


PLAIN = {"model": ref("model", 1), "tokens": ref("tokens", 2)}
STORED = {"index": ref("index", 3), "neighbors": ref("neighbors", 4)}


def test_a_plain_model():
    assert command(PLAIN) == [
        *(PLAIN["model"], "--tokens", PLAIN["tokens"], "--split", "valid"),
        *(*WINDOWS, *COUNTED, "--memory", "none", "--save-token-scores"),
    ]


@pytest.mark.parametrize("own", [True, False])
def test_neighbours_of_the_model_s_own_or_of_another_encoder(own):
    roles = {**PLAIN, **STORED, "encoder": PLAIN["model"] if own else ref("model", 5)}
    readings = ["external:lambda=tune", "long:size=5,lambda=0.1"]
    words = command(roles, memory=readings, tune_split="valid")
    assert words[0] == (STORED["neighbors"] if own else PLAIN["model"])
    assert ("--neighbors" in words) == (not own)
    assert [word for name, word in pairwise(words) if name == "--memory"] == readings
    assert words[words.index("--tune-split") + 1] == "valid"


def test_what_a_gate_reads():
    words = command({**PLAIN, "gate_neighbors": STORED["neighbors"]}, gate_k=[4, 1], mem_length=0)
    assert words[0] == PLAIN["model"]
    assert words[words.index("--neighbors") + 1] == STORED["neighbors"]
    assert words[words.index("--gate-k") + 1] == "4,1" and words[words.index("--mem-length") + 1] == "0"
