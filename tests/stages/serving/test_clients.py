"""Clients that others made: the `openai` package, and lm-evaluation-harness over HTTP."""

from types import SimpleNamespace
from typing import Any

import pytest

from memlm_cli.harness import MemlmLM
from stages.artifacts.artifact import Artifact
from stages.serving.engine import Engine
from tests.stages.serving.address import Address, serving
from tests.stages.serving.conftest import READINGS

openai = pytest.importorskip("openai")
local = pytest.importorskip("lm_eval.models.openai_completions")

PROMPT = "the cat sees"
TOKEN = "0123456789abcdef"


def client(address: Address, token: str = "none") -> Any:
    return openai.OpenAI(base_url=f"{address.url}/v1", api_key=token, max_retries=0)


def test_openai_completes_and_streams(address: Address) -> None:
    asked = {"model": "small", "prompt": PROMPT, "max_tokens": 6, "seed": 2, "logprobs": 2}
    whole = client(address).completions.create(**asked)
    (choice,) = whole.choices
    assert choice.finish_reason in ("length", "stop") and choice.text
    assert len(choice.logprobs.tokens) == len(choice.logprobs.token_logprobs)
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    options = {"include_usage": True}
    chunks = list(client(address).completions.create(**asked, stream=True, stream_options=options))
    assert "".join(part.text for chunk in chunks for part in chunk.choices) == choice.text
    assert chunks[-1].usage == whole.usage
    names = [model.id for model in client(address).models.list()]
    assert names == ["small", "small:plain"]


def test_openai_raises_its_own_errors(engine: Engine) -> None:
    with serving(engine, token=TOKEN) as address:
        for token, fields, error in [
            ("x" * 16, {}, openai.AuthenticationError),
            (TOKEN, {"model": "other"}, openai.NotFoundError),
            (TOKEN, {"n": 3}, openai.BadRequestError),
        ]:
            with pytest.raises(error) as raised:
                client(address, token).completions.create(
                    **{"model": "small", "prompt": PROMPT, **fields}
                )
        assert raised.value.param == "n"


def requests(*arguments: Any) -> list[Any]:
    return [SimpleNamespace(args=one) for one in arguments]


def test_the_harness_reads_here_what_it_reads_in_process(address: Address, index: Artifact) -> None:
    """The same figures item by item, and the same texts."""
    here = MemlmLM(index.reference, store=str(index.store.root), memory=READINGS, device="cpu")
    there = local.LocalCompletionsAPI(
        base_url=f"{address.url}/v1/completions",
        model="small",
        tokenizer_backend="remote",
        max_length=24,
        batch_size=2,
    )
    pairs = requests(
        ("the cat", " sees the hen"),
        ("", "the cat runs"),
        ("a dog ", "and"),
        ("the pig", " a cat"),
        ("the pig", ""),
    )
    for pair, one, other in zip(
        pairs, here.loglikelihood(pairs, True), there.loglikelihood(pairs, True), strict=True
    ):
        assert other == (pytest.approx(one[0], abs=1e-5), one[1]), pair.args
    (likeliest,) = here.generate_until(requests((PROMPT, {"until": [], "max_gen_toks": 3})), True)
    best = requests((PROMPT, likeliest))
    assert [found[1] for found in there.loglikelihood(best, True)] == [
        found[1] for found in here.loglikelihood(best, True)
    ]
    until = {"until": ["cat", "."], "max_gen_toks": 8}
    texts = requests((PROMPT, until), ("a hen", until))
    assert there.generate_until(texts, True) == here.generate_until(texts, True)
