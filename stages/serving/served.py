"""The model of an address by its names: which memory a request reads, and the ids of its prompts."""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from stages.errors import MemlmError, UsageError
from stages.serving.completing import Order, Sampling
from stages.serving.completion import ChatFields, CompletionFields, Prompt, SamplingFields
from stages.serving.engine import NONE, Engine
from stages.serving.refusal import Refusal, invalid
from stages.serving.settings import MAX_LISTED

PLAIN = ":plain"
"""Ends the name of the model alone."""
COMPLETION_TOKENS = 16
"""Tokens written for a prompt if a request does not say how many."""
CHAT_TOKENS = 256
"""Tokens written in a chat if a request does not say how many."""


def check_model_name(name: str) -> None:
    """Raises: UsageError for the name that stands for the model alone."""
    if name == NONE:
        raise UsageError(
            f"{NONE!r} is the name of the model alone: give the artifact another name, or its id."
        )


@dataclass(frozen=True)
class ServedModel:
    """A model that answers as `name` with its memories, and as `name:plain` without."""

    name: str
    engine: Engine
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def names(self) -> dict[str, str]:
        """Memories by the names of the model."""
        with_memories = self.name if self.name in self.engine.sessions else NONE
        return {self.name: with_memories, self.name + PLAIN: NONE}

    @property
    def memories(self) -> list[str]:
        """Names of the memories, and of the model alone."""
        return list(self.engine.sessions)

    def listing(self) -> list[dict[str, Any]]:
        """The names of the model, and what is read for each."""
        return [
            {
                "id": name,
                "object": "model",
                "created": self.created,
                "owned_by": "memlm",
                "max_model_len": self.engine.context,
                "memlm": self.read(memory),
            }
            for name, memory in self.names.items()
        ]

    def read(self, memory: str) -> dict[str, Any]:
        """A memory by its name, its readings with their numbers, and the artifacts that are read."""
        reader = self.engine.reader(memory)
        artifacts = (
            reader.read
            if memory != NONE
            else {role: reader.read[role] for role in ("model", "tokens")}
        )
        return {
            "memory": memory,
            "generation": self.engine.generation,
            "readings": reader.memories,
            "artifacts": {role: artifact.reference for role, artifact in artifacts.items()},
        }

    def model_name(self, fields: SamplingFields) -> str:
        """The name by which a request calls the model. Raises: Refusal for an unknown name."""
        name = fields.model or self.name
        if name not in self.names:
            names = ", ".join(self.names)
            raise Refusal(
                404,
                f"There is no model of this name; known: {names}.",
                param="model",
                code="model_not_found",
            )
        return name

    def memory(self, fields: SamplingFields) -> str:
        """The memory that a request reads. Raises: Refusal for an unknown one."""
        memory = fields.memlm.memory or self.names[self.model_name(fields)]
        if memory not in self.engine.sessions:
            names = ", ".join(self.engine.sessions)
            raise invalid(
                f"memlm.memory: there is none of this name; known: {names}.", "memlm.memory"
            )
        return memory

    def ids(self, prompt: Prompt) -> Sequence[int]:
        """Ids of a prompt. Raises: Refusal if it is too long, or an id is of no token."""
        size = self.engine.vocabulary_size
        longest = self.engine.context
        ids = self.engine.text.prompt_ids(prompt) if isinstance(prompt, str) else prompt
        if not all(0 <= id < size for id in ids):
            raise invalid(f"prompt: ids of tokens are 0 to {size - 1:,}.", "prompt")
        if len(self.engine.without_start(ids)) > longest:
            raise invalid(
                f"prompt: it has {len(ids):,} tokens; this model reads {longest:,} at once.",
                "prompt",
                "context_length_exceeded",
            )
        return ids

    def order(self, fields: CompletionFields) -> Order:
        """The work that a completion asks for. Raises: Refusal if it cannot be had."""
        max_tokens = fields.max_tokens
        order = Order(
            prompts=[self.ids(prompt) for prompt in fields.prompts],
            max_tokens=COMPLETION_TOKENS if max_tokens is None else max_tokens,
            top=fields.logprobs,
            echo=bool(fields.echo),
            **self._common(fields),
        )
        self._require_short_answer(order)
        return order

    def chat_order(self, fields: ChatFields) -> Order:
        """The work that a chat asks for. Raises: Refusal if it cannot be had."""
        try:
            ids = self.engine.chat_ids(fields.conversation)
        except MemlmError as error:
            raise invalid(f"messages: {error}", "messages") from None
        limits = (fields.max_completion_tokens, fields.max_tokens, CHAT_TOKENS)
        return Order(
            prompts=[self.ids(tuple(ids))],
            max_tokens=next(limit for limit in limits if limit is not None),
            top=(fields.top_logprobs or 0) if fields.logprobs else None,
            **self._common(fields),
        )

    def _common(self, fields: SamplingFields) -> dict[str, Any]:
        """The parts of an order that completions and chats have in common."""
        return {
            "memory": self.memory(fields),
            "sampling": sampling_of(fields),
            "stops": fields.stops,
            "attribution": fields.memlm.attribution,
            "ends": self.engine.ends,
        }

    def _require_short_answer(self, order: Order) -> None:
        """Raises: Refusal if the lists of an answer would fill the memory of the machine."""
        tokens = sum(map(len, order.prompts)) * order.echo + len(order.prompts) * order.max_tokens
        each = (0 if order.top is None else 1 + order.top) + order.attribution
        if tokens * each > MAX_LISTED:
            raise invalid(
                f"An answer lists at most {MAX_LISTED:,} log-probabilities and passages, not {tokens * each:,}: send "
                "fewer prompts at once."
            )


@dataclass
class Serving:
    """The model that answers now; a request reads it once, and keeps what it has got."""

    model: ServedModel

    def swap(self, engine: Engine) -> None:
        """Let later requests be answered by another generation."""
        self.model = replace(self.model, engine=engine)


def sampling_of(fields: SamplingFields) -> Sampling:
    """How tokens are drawn; without a seed, differently each time."""
    temperature = 1.0 if fields.temperature is None else fields.temperature
    seed = secrets.randbits(62) if fields.seed is None else fields.seed
    return Sampling(temperature, fields.top_k, fields.top_p, abs(seed))


def tokenizer_info(engine: Engine) -> Mapping[str, Any]:
    """The tokenizer, as harnesses that evaluate over HTTP ask for it."""
    eos = engine.text.eos
    start = engine.start
    return {
        "tokenizer_class": "memlm",
        "vocab_size": engine.vocabulary_size,
        "model_max_length": engine.context,
        "eos_token": engine.label(eos),
        "eos_token_id": eos,
        "bos_token": None if start == eos else engine.label(start),
        "bos_token_id": None if start == eos else start,
        "chat_template": engine.chat_template,
    }
