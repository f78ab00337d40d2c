"""Requests for completions: their fields, their limits, and fields that are refused."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, Field, WithJsonSchema

from stages.serving.bodies import Body, checked
from stages.serving.refusal import invalid
from stages.serving.settings import (
    MAX_CONTEXTS,
    MAX_LOGPROBS,
    MAX_MESSAGES,
    MAX_PROMPTS,
    MAX_STOP_LENGTH,
    MAX_STOPS,
    MAX_TOKENS,
)

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "suffix": ("",),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "min_p": (0,),
    "min_tokens": (0,),
    "response_format": ({"type": "text"},),
    "tools": ([],),
}
"""Fields that would change the text and are not computed; and the values that change nothing."""

MaxTokens = Annotated[int, Field(ge=0, le=MAX_TOKENS)]
"""Tokens that are written for each prompt."""
Prompt = str | tuple[int, ...]
"""A text, or the ids of its tokens."""
TEXT_SCHEMA: Mapping[str, Any] = {"type": "string"}
TEXTS_SCHEMA = {"anyOf": [TEXT_SCHEMA, {"type": "array", "items": TEXT_SCHEMA}]}
IDS_SCHEMA = {"type": "array", "items": {"type": "integer", "minimum": 0}}
PROMPT_SCHEMA = {
    "anyOf": [
        TEXT_SCHEMA,
        IDS_SCHEMA,
        {"type": "array", "items": {"anyOf": [TEXT_SCHEMA, IDS_SCHEMA]}, "maxItems": MAX_PROMPTS},
    ]
}
"""Fields that are checked by code, as the description of the address shows them."""


class StreamOptions(Body):
    """The end of a stream."""

    include_usage: bool = False


class MemoryOptions(Body):
    """Which memory is read, and whether the answer says what it gave.

    No other client sends these fields, so an unknown one is a slip.
    """

    model_config = ConfigDict(extra="forbid")

    memory: str | None = None
    """Name of a memory; `none`: the model alone; None: as the model's name says."""
    attribution: Annotated[int, Field(ge=0, le=MAX_CONTEXTS)] = 0
    """Passages listed for each token; 0: none, and no probabilities by memory."""


class SamplingFields(Body):
    """Fields that completions and chats have in common."""

    model: str | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=1)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: Annotated[Any, WithJsonSchema(TEXTS_SCHEMA)] = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    memlm: MemoryOptions = MemoryOptions()

    @property
    def stops(self) -> tuple[str, ...]:
        """Strings that end the text. Raises: Refusal if there are too many, or they are none."""
        strings = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if not isinstance(strings, list) or not all(isinstance(text, str) for text in strings):
            raise invalid("stop: a text or a list of texts is needed.", "stop")
        stops = tuple(text for text in strings if text)
        if len(stops) > MAX_STOPS or any(len(text) > MAX_STOP_LENGTH for text in stops):
            raise invalid(
                f"stop: at most {MAX_STOPS} texts of {MAX_STOP_LENGTH} characters are read.", "stop"
            )
        return stops


class Message(Body):
    """A message of a conversation."""

    role: Annotated[str, Field(min_length=1, max_length=64)]
    content: Annotated[Any, WithJsonSchema({"type": "string"})]

    @property
    def text(self) -> str:
        """The content, which may come in parts. Raises: Refusal for anything but text."""
        if isinstance(self.content, str):
            return self.content
        parts = self.content if isinstance(self.content, list) else [None]
        texts = [part.get("text") if isinstance(part, dict) else None for part in parts]
        if not all(isinstance(text, str) for text in texts):
            raise invalid("messages: the content of a message is text.", "messages")
        return "".join(map(str, texts))


class ChatFields(SamplingFields):
    """Fields of `POST /v1/chat/completions`."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)]
    max_tokens: MaxTokens | None = None
    max_completion_tokens: MaxTokens | None = None
    """The same, under its later name."""
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None

    @property
    def conversation(self) -> list[dict[str, str]]:
        """Role and content of each message."""
        return [{"role": message.role, "content": message.text} for message in self.messages]


class CompletionFields(SamplingFields):
    """Fields of `POST /v1/completions`."""

    prompt: Annotated[Any, WithJsonSchema(PROMPT_SCHEMA)]
    max_tokens: MaxTokens | None = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    echo: bool | None = None

    @property
    def prompts(self) -> list[Prompt]:
        """The prompts. Raises: Refusal if there are none, too many, or they are of other types."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if not isinstance(self.prompt, list) or not self.prompt:
            raise invalid("prompt: a text, ids, or a list of either is needed.", "prompt")
        if isinstance(self.prompt[0], int):
            return [_ids(self.prompt)]
        if len(self.prompt) > MAX_PROMPTS:
            raise invalid(f"prompt: at most {MAX_PROMPTS} prompts are read at once.", "prompt")
        return [prompt if isinstance(prompt, str) else _ids(prompt) for prompt in self.prompt]


def _ids(value: Any) -> tuple[int, ...]:
    """Token ids. Raises: Refusal for anything else; a Boolean is no id."""
    if not isinstance(value, list) or not all(type(id) is int for id in value):
        raise invalid("prompt: ids of tokens are a list of integers.", "prompt")
    return tuple(value)


F = TypeVar("F", bound=SamplingFields)


def completion_fields(values: Mapping[str, Any]) -> CompletionFields:
    """Check the fields of a completion. Raises: Refusal with the name of the first wrong one."""
    return _fields(CompletionFields, values)


def chat_fields(values: Mapping[str, Any]) -> ChatFields:
    """Check the fields of a chat. Raises: Refusal with the name of the first wrong one."""
    fields = _fields(ChatFields, values)
    if fields.top_logprobs is not None and not fields.logprobs:
        raise invalid("top_logprobs: logprobs must be true.", "top_logprobs")
    return fields


def _fields(model: type[F], values: Mapping[str, Any]) -> F:
    refuse_uncomputed(values)
    fields = checked(model, _without_nulls(values))
    if fields.stream_options is not None and not fields.stream:
        raise invalid("stream_options: only a stream has options.", "stream_options")
    return fields


def refuse_uncomputed(
    values: Mapping[str, Any], neutral: Mapping[str, Sequence[Any]] = NEUTRAL
) -> None:
    """Raises: Refusal for a field that would change the text, and is not computed here."""
    for name, harmless in neutral.items():
        value = values.get(name)
        if value is None or any(type(value) is not bool and value == one for one in harmless):
            continue
        raise invalid(f"{name}: this is not computed here; leave it out.", name, "unsupported")


def _without_nulls(values: Mapping[str, Any]) -> dict[str, Any]:
    """The given fields; null means that a field is left out."""
    return {name: value for name, value in values.items() if value is not None}
