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
    ids = [token.id for token in generate(engine.readers[memory], wanted)]
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
        want = [token.final for token in inspect_ids(engine.readers[memory], ids, 0).tokens]
        assert choice["text"] == "".join(engine.text.pieces(ids)) == PROMPT
        assert lists["token_logprobs"][0] is None and lists["top_logprobs"][0] is None
        assert np.exp(lists["token_logprobs"][1:]) == pytest.approx(want[1:], abs=1e-6)
        for log_p, top in zip(lists["token_logprobs"][1:], lists["top_logprobs"][1:], strict=True):
            assert 3 <= len(top) <= 4 and log_p in top.values()
        parts = [PROMPT[place:] for place in lists["text_offset"]]
        assert all(map(str.startswith, parts, lists["tokens"]))
