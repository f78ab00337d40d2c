"""Conversations over HTTP, in the form of a template."""

from collections.abc import Iterator
from typing import Any

import pytest

from stages.serving.engine import Engine
from tests.stages.serving.address import Address, serving

pytest.importorskip("transformers")
openai = pytest.importorskip("openai")

TEMPLATE = (
    "{% for message in messages %}{% if message.role == 'tool' %}{{ raise_exception('no tools') }}"
    "{% endif %}{{ message.content }}\n{% endfor %}a"
)
MESSAGES = [
    {"role": "system", "content": "the hen"},
    {"role": "user", "content": [{"type": "text", "text": "a "}, {"type": "text", "text": "cat"}]},
]
PROMPT = "the hen\na cat\na"


class Chatty(Engine):
    """An engine whose model has a template."""

    def chat_ids(self, messages: Any) -> list[int]:
        from stages.generation.chat import chat_text

        return self.text.ids(chat_text(TEMPLATE, {}, messages))


@pytest.fixture(scope="module")
def chatty(engine: Engine) -> Iterator[Address]:
    with serving(Chatty(engine.sessions)) as running:
        yield running


def client(address: Address) -> Any:
    made = openai.OpenAI(base_url=f"{address.url}/v1", api_key="none", max_retries=0)
    return made.chat.completions


def test_a_turn_is_the_completion_of_the_rendered_conversation(chatty: Address) -> None:
    asked = {"max_tokens": 6, "temperature": 0}
    want = chatty.complete(prompt=PROMPT, logprobs=2, **asked).json["choices"][0]
    turn = client(chatty).create(
        model="small", messages=MESSAGES, logprobs=True, top_logprobs=2, **asked
    )
    (choice,) = turn.choices
    assert choice.message.role == "assistant"
    assert (choice.message.content, choice.finish_reason) == (want["text"], want["finish_reason"])
    listed = choice.logprobs.content
    assert [token.token for token in listed] == want["logprobs"]["tokens"]
    assert [token.logprob for token in listed] == want["logprobs"]["token_logprobs"]
    assert all(len(token.top_logprobs) == 2 for token in listed)
    assert all(token.top_logprobs[0].logprob == token.logprob for token in listed)
    chunks = list(client(chatty).create(model="small", messages=MESSAGES, stream=True, **asked))
    assert chunks[0].choices[0].delta.role == "assistant"
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks]
    assert "".join(texts) == want["text"]
    assert chunks[-1].choices[0].finish_reason == want["finish_reason"]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "is text"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "no tools"),
        ({"messages": [{"role": "user", "content": "hen " * 99}]}, "at once"),
        ({"messages": MESSAGES, "top_logprobs": 3}, "logprobs"),
        ({"messages": MESSAGES, "tools": [{"type": "function"}]}, "tools"),
    ],
)
def test_a_conversation_that_cannot_be_had_is_refused(
    chatty: Address, fields: dict[str, Any], says: str
) -> None:
    reply = chatty.post("/v1/chat/completions", fields)
    assert reply.status == 400 and says in reply.message


def test_a_model_without_a_template_has_no_conversation(address: Address) -> None:
    reply = address.post("/v1/chat/completions", {"messages": MESSAGES})
    assert reply.status == 400 and "/v1/completions" in reply.message
