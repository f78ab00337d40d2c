"""Requests that are refused: what a body may hold, and what the answer says."""

import json
from typing import Any

import pytest

from stages.serving.engine import Engine
from stages.serving.settings import MAX_BODY, MAX_STOP_LENGTH
from tests.stages.serving.address import Address
from tests.stages.serving.conftest import WINDOW

UNCOMPUTED = {
    "n": 2,
    "best_of": 3,
    "suffix": "end",
    "logit_bias": {"5": 1},
    "presence_penalty": 0.5,
    "frequency_penalty": -1,
    "repetition_penalty": 1.1,
    "min_p": 0.1,
}


@pytest.mark.parametrize("name", UNCOMPUTED)
def test_a_field_that_would_change_the_text_is_refused_by_name(address: Address, name: str) -> None:
    reply = address.complete(prompt="a", **{name: UNCOMPUTED[name]})
    assert reply.status == 400
    assert reply.json["error"]["param"] == name and name in reply.message


def test_values_that_change_nothing_and_unknown_fields_pass(address: Address) -> None:
    harmless = {"n": 1, "best_of": 1, "suffix": None, "logit_bias": {}, "presence_penalty": 0.0}
    reply = address.complete(prompt="a", max_tokens=1, **harmless, user="me", whatever=[1])
    assert reply.status == 200


WRONG: list[tuple[str, Any]] = [
    ("memlm.atribution", {"atribution": 4}),
    ("temperature", -1),
    ("temperature", 3),
    ("temperature", "hot"),
    ("top_p", 0),
    ("top_k", 0),
    ("seed", 2**70),
    ("max_tokens", 1025),
    ("max_tokens", -1),
    ("max_tokens", True),
    ("logprobs", 21),
    ("echo", "yes"),
    ("stop", 5),
    ("stop", ["a"] * 17),
    ("stop", "a" * (MAX_STOP_LENGTH + 1)),
    ("stream_options", {"include_usage": True}),
    ("memlm.memory", {"memory": "other"}),
    ("memlm.attribution", {"attribution": 17}),
    ("prompt", []),
    ("prompt", None),
    ("prompt", 5),
    ("prompt", [True]),
    ("prompt", [1.5]),
    ("prompt", [[1], "a", None]),
    ("prompt", ["a"] * 129),
    ("prompt", [-1]),
    ("prompt", [10**9]),
    ("prompt", [1] * (WINDOW + 1)),
    ("prompt", "hen " * 4 * WINDOW),
]


@pytest.mark.parametrize(("name", "value"), WRONG, ids=str)
def test_a_wrong_value_is_refused_with_its_name(address: Address, name: str, value: Any) -> None:
    reply = address.complete(**{"prompt": "a", "max_tokens": 1, name.partition(".")[0]: value})
    assert reply.status == 400
    assert reply.json["error"]["param"] == name and name in reply.message
    assert reply.json["error"]["type"] == "invalid_request_error"


def test_a_prompt_may_fill_the_window_behind_the_start(address: Address, engine: Engine) -> None:
    for prompt in ([2] * WINDOW, [engine.start, *[2] * WINDOW], [engine.start], ""):
        reply = address.complete(prompt=prompt, max_tokens=2, echo=True, logprobs=1)
        assert reply.status == 200, reply.message
        lists = reply.json["choices"][0]["logprobs"]
        assert len(lists["tokens"]) >= len(prompt)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "no JSON"),
        (b"[]", "no JSON object"),
        (b"{", "no JSON"),
        (b'{"prompt": "\xff"}', "no UTF-8"),
        (b'{"prompt": "\\ud800"}', "surrogate"),
        (b'{"prompt": "a", "temperature": NaN}', "NaN"),
        (b'{"prompt": "a", "temperature": 1e999}', "temperature"),
        (b'{"prompt": ' + b"9" * 5000 + b"}", "no JSON"),
        (b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "deep"),
    ],
    ids=["empty", "list", "half", "bytes", "surrogate", "nan", "infinity", "digits", "nested"],
)
def test_a_body_that_is_no_strict_json_is_refused(address: Address, body: bytes, says: str) -> None:
    reply = address.post("/v1/completions", body)
    assert reply.status == 400 and says in reply.message


def test_bodies_are_of_one_type_and_size(address: Address) -> None:
    large = json.dumps({"prompt": "a" * MAX_BODY}).encode()
    assert address.post("/v1/completions", large).status == 413
    typed = {"Content-Type": "application/x-www-form-urlencoded"}
    assert address.ask("POST", "/v1/completions", b"{}", typed).status == 415
    # The server closes this connection at once, so a body that is still sent would reset it.
    assert address.ask("POST", "/v1/completions", None, {"Content-Length": "x"}).status == 400


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/v1/completions", 405),
        ("GET", "/v1/../../etc/passwd", 404),
        ("GET", "/v1/models/..%2f..%2fetc%2fpasswd", 404),
        ("GET", "/v1/models/", 404),
        ("DELETE", "/v1/models", 405),
    ],
)
def test_other_paths_and_methods_are_refused_as_json(
    address: Address, method: str, path: str, status: int
) -> None:
    reply = address.ask(method, path)
    assert reply.status == status and reply.json["error"]["message"]


def test_long_lists_are_refused(address: Address) -> None:
    reply = address.complete(
        prompt=["a"] * 128, max_tokens=1024, logprobs=20, memlm={"attribution": 4}
    )
    assert reply.status == 400 and "fewer prompts" in reply.message
