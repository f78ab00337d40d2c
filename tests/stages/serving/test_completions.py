"""Completions over HTTP: text, scores, streams and limits of a request."""

from typing import Any

import numpy as np
import pytest

from stages.generation import GenerationRequest
from stages.generation.generate import generate
from stages.inspection.inspect import inspect_ids
from stages.serving.engine import Engine
from tests.stages.serving.address import Address

PROMPT = "the cat sees the hen and"


def written(engine: Engine, memory: str, prompt: str, **settings: Any) -> str:
    """The text of `memlm generate`, without `<eos>`."""
    wanted = GenerationRequest(prompt=prompt, stop_at_eos=True, **settings)
    ids = [token.id for token in generate(engine.reader(memory), wanted)]
    return engine.text.decoded([*engine.text.ids(prompt), *ids])[len(prompt) :]


@pytest.mark.parametrize("settings", [{"temperature": 0}, {"seed": 5}, {"seed": 5, "top_p": 0.6}])
@pytest.mark.parametrize(("model", "memory"), [("small", "small"), ("small:plain", "none")])
def test_the_text_is_that_of_generate(
    address: Address, engine: Engine, settings: dict[str, Any], model: str, memory: str
) -> None:
    reply = address.complete(prompt=PROMPT, model=model, max_tokens=9, **settings)
    (choice,) = reply.json["choices"]
    assert choice["text"] == written(engine, memory, PROMPT, max_tokens=9, **settings)
    assert reply.json["memlm"]["memory"] == memory
    used = reply.json["usage"]
    assert used["prompt_tokens"] == len(engine.text.ids(PROMPT))
    assert used["completion_tokens"] <= 9


def test_echo_scores_the_prompt_as_inspect_does(address: Address, engine: Engine) -> None:
    ids = engine.text.ids(PROMPT)
    for memory in ("small", "none"):
        reply = address.complete(
            prompt=PROMPT, echo=True, logprobs=3, max_tokens=0, memlm={"memory": memory}
        )
        (choice,) = reply.json["choices"]
        lists = choice["logprobs"]
        want = [token.final for token in inspect_ids(engine.reader(memory), ids, 0).tokens]
        assert choice["text"] == "".join(engine.text.pieces(ids)) == PROMPT
        assert lists["token_logprobs"][0] is None and lists["top_logprobs"][0] is None
        assert np.exp(lists["token_logprobs"][1:]) == pytest.approx(want[1:], abs=1e-6)
        for log_p, top in zip(lists["token_logprobs"][1:], lists["top_logprobs"][1:], strict=True):
            assert 3 <= len(top) <= 4 and log_p in top.values()
        parts = [PROMPT[place:] for place in lists["text_offset"]]
        assert all(map(str.startswith, parts, lists["tokens"]))


def test_a_stream_brings_what_the_whole_answer_has(address: Address) -> None:
    asked = {"prompt": [PROMPT, "a dog"], "max_tokens": 6, "logprobs": 2, "seed": 3, "echo": True}
    whole = address.complete(**asked).json
    reply = address.complete(**asked, stream=True, stream_options={"include_usage": True})
    *events, last = reply.events
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert last["choices"] == [] and last["usage"] == whole["usage"]
    for choice in whole["choices"]:
        own = [
            part
            for event in events
            for part in event["choices"]
            if part["index"] == choice["index"]
        ]
        assert len(own) > 2
        assert "".join(part["text"] for part in own) == choice["text"]
        assert [part["finish_reason"] for part in own][-1] == choice["finish_reason"]
        for name, values in choice["logprobs"].items():
            assert [value for part in own for value in part["logprobs"][name]] == values


def test_a_text_ends_before_a_stop_string(address: Address) -> None:
    asked = {"prompt": PROMPT, "max_tokens": 12, "seed": 3, "logprobs": 1}
    text = address.complete(**asked).json["choices"][0]["text"]
    stop = text[4:7]
    for stream in (False, True):
        reply = address.complete(**asked, stop=[stop, "never"], stream=stream)
        parts = [event["choices"][0] for event in reply.events] if stream else reply.json["choices"]
        assert "".join(part["text"] for part in parts) == text[: text.find(stop)]
        assert parts[-1]["finish_reason"] == "stop"
        offsets = [place for part in parts for place in part["logprobs"]["text_offset"]]
        assert offsets == sorted(offsets) and offsets[-1] < text.find(stop)
        assert len(offsets) < 12


def test_each_prompt_is_answered_as_if_it_were_alone(address: Address) -> None:
    prompts = [PROMPT, "a dog", "", "the pig runs"]
    asked = {"max_tokens": 5, "seed": 8, "logprobs": 1, "echo": True}
    together = address.complete(prompt=prompts, **asked).json["choices"]
    alone = [address.complete(prompt=one, **asked).json["choices"][0] for one in prompts]
    for number, (choice, want) in enumerate(zip(together, alone, strict=True)):
        assert (choice["index"], choice["text"]) == (number, want["text"])
        assert choice["finish_reason"] == want["finish_reason"]
        found, expected = choice["logprobs"], want["logprobs"]
        assert found["tokens"] == expected["tokens"]
        assert found["token_logprobs"][1:] == pytest.approx(
            expected["token_logprobs"][1:], abs=1e-5
        )


def test_attribution_is_what_inspect_tells(address: Address, engine: Engine) -> None:
    reply = address.complete(
        prompt=PROMPT, temperature=0, max_tokens=3, memlm={"attribution": 2}, logprobs=0
    )
    (choice,) = reply.json["choices"]
    tokens = choice["memlm"]["tokens"]
    assert [token["token"] for token in tokens] == choice["logprobs"]["tokens"]
    ids = [*engine.text.ids(PROMPT), *(token["id"] for token in tokens)]
    want = inspect_ids(engine.reader("small"), ids, 2).tokens[-len(tokens) :]
    for token, view in zip(tokens, want, strict=True):
        parts = [memory["p"] for memory in token["memories"]]
        assert token["p"] == pytest.approx(view.final)
        assert token["model"] + sum(parts) == pytest.approx(token["p"])
        assert [memory["name"] for memory in token["memories"]] == ["datastore", "cache"]
        found = [(one["weight"], one["token"]) for one in token["contexts"]]
        assert found == [(one.carried, one.source.token) for one in view.contexts]
        own = [one for one in token["contexts"] if one["memory"] == "cache"]
        assert all(one["document"] is None and one["position"] < len(ids) for one in own)
    assert any(
        one["document"].endswith("train.txt")
        for token in tokens
        for one in token["contexts"]
        if one["memory"] == "datastore"
    )


def test_the_model_answers_by_two_names(address: Address) -> None:
    names = [entry["id"] for entry in address.get("/v1/models").json["data"]]
    assert names == ["small", "small:plain"]
    plain = address.get("/v1/models/small:plain").json
    assert plain["owned_by"] == "memlm" and plain["memlm"]["readings"] == []
    assert address.get("/v1/models/other").status == 404
    assert address.complete(prompt="a", model="other").json["error"]["code"] == "model_not_found"


def test_the_tokenizer_is_asked_as_harnesses_do(address: Address, engine: Engine) -> None:
    info = address.get("/tokenizer_info").json
    assert info["eos_token"] == "<eos>" and info["bos_token"] is None
    ids = engine.text.ids(PROMPT)
    found = address.post("/tokenize", {"prompt": PROMPT, "add_special_tokens": False}).json
    assert found["tokens"] == ids and found["count"] == len(ids)
    assert address.post("/tokenize", {"prompt": "<eos>"}).json["tokens"] == [engine.text.eos]
    assert address.post("/detokenize", {"tokens": ids}).json["prompt"] == PROMPT


def test_figures_count_and_hold_no_text(address: Address) -> None:
    address.complete(prompt="the secret hen", max_tokens=2, seed=1)
    figures = address.get("/metrics").body.decode()
    assert 'memlm_requests_total{route="/v1/completions",status="200"}' in figures
    assert "memlm_new_tokens_total" in figures and "memlm_waiting_requests 0.0" in figures
    assert "secret" not in figures
    assert address.get("/health").json == {"status": "ok"}
    assert address.get("/ready").json["model"] == "small"
