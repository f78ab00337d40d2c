"""The model of an address by its names: which memory a request reads, and the ids of its prompts."""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stages.errors import UsageError
from stages.serving.completing import Order
from stages.serving.completion import CompletionFields, Prompt, SamplingFields
from stages.serving.engine import NONE, Engine, Sampling
from stages.serving.refusal import Refusal, invalid
from stages.serving.settings import MAX_LISTED

PLAIN = ":plain"
"""Ends the name of the model alone."""
MAX_TOKENS_DEFAULT = 16
"""Tokens written for a prompt if a request does not say how many."""


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
        with_memories = self.name if self.name in self.engine.readers else NONE
        return {self.name: with_memories, self.name + PLAIN: NONE}

    @property
    def memories(self) -> list[str]:
        """Names of the memories, and of the model alone."""
        return list(self.engine.readers)

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
        reader = self.engine.readers[memory]
        artifacts = (
            reader.read
            if memory != NONE
            else {role: reader.read[role] for role in ("model", "tokens")}
        )
        return {
            "memory": memory,
            "readings": reader.memories,
            "artifacts": {role: artifact.reference for role, artifact in artifacts.items()},
        }

    def model_name(self, fields: SamplingFields) -> str:
        """The name by which a request calls the model. Raises: Refusal for an unknown name."""
        name = fields.model or self.name
        if name not in self.names:
            known = ", ".join(self.names)
            raise Refusal(
                404,
                f"There is no model of this name; known: {known}.",
                param="model",
                code="model_not_found",
            )
        return name

    def memory(self, fields: SamplingFields) -> str:
        """The memory that a request reads. Raises: Refusal for an unknown one."""
        asked = fields.memlm.memory or self.names[self.model_name(fields)]
        if asked not in self.engine.readers:
            known = ", ".join(self.engine.readers)
            raise invalid(
                f"memlm.memory: there is none of this name; known: {known}.", "memlm.memory"
            )
        return asked

    def ids(self, prompt: Prompt) -> Sequence[int]:
        """Ids of a prompt. Raises: Refusal if it is too long, or an id is of no token."""
        size, longest = self.engine.vocabulary_size, self.engine.context
        ids = self.engine.text.ids(prompt) if isinstance(prompt, str) else prompt
        if not all(0 <= id < size for id in ids):
            raise invalid(f"prompt: ids of tokens are 0 to {size - 1:,}.", "prompt")
        # The start of a text stands before the first window, and takes no place in it.
        if len(self.engine.behind_start(ids)) > longest:
            raise invalid(
                f"prompt: it has {len(ids):,} tokens; this model reads {longest:,} at once.",
                "prompt",
                "context_length_exceeded",
            )
        return ids

    def order(self, fields: CompletionFields) -> Order:
        """The work that a completion asks for. Raises: Refusal if it cannot be had."""
        prompts = [self.ids(prompt) for prompt in fields.prompts]
        order = Order(
            prompts=prompts,
            memory=self.memory(fields),
            sampling=sampling_of(fields),
            max_tokens=MAX_TOKENS_DEFAULT if fields.max_tokens is None else fields.max_tokens,
            stops=fields.stops,
            top=fields.logprobs,
            echo=bool(fields.echo),
            attribution=fields.memlm.attribution,
            ends=self.engine.ends,
        )
        self._require_short_answer(order)
        return order

    def _require_short_answer(self, order: Order) -> None:
        """Raises: Refusal if the lists of an answer would fill the memory of the machine."""
        tokens = sum(map(len, order.prompts)) * order.echo + len(order.prompts) * order.max_tokens
        each = (0 if order.top is None else 1 + order.top) + order.attribution
        if tokens * each > MAX_LISTED:
            raise invalid(
                f"An answer lists at most {MAX_LISTED:,} log-probabilities and passages, not {tokens * each:,}: send "
                "fewer prompts at once."
            )


def sampling_of(fields: SamplingFields) -> Sampling:
    """How tokens are drawn; without a seed, differently each time."""
    temperature = 1.0 if fields.temperature is None else fields.temperature
    seed = secrets.randbits(62) if fields.seed is None else fields.seed
    return Sampling(temperature, fields.top_k, fields.top_p, abs(seed))


def tokenizer_info(engine: Engine) -> Mapping[str, Any]:
    """The tokenizer, as harnesses that evaluate over HTTP ask for it."""
    eos, start = engine.text.eos, engine.start
    return {
        "tokenizer_class": "memlm",
        "vocab_size": engine.vocabulary_size,
        "model_max_length": engine.context,
        "eos_token": engine.label(eos),
        "eos_token_id": eos,
        "bos_token": None if start == eos else engine.label(start),
        "bos_token_id": None if start == eos else start,
    }
