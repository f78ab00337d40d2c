"""The model behind an address: prompts are scored and continued, and tokens are attributed.

Only this module of the room knows how texts are read. All of it runs in the worker's thread.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.generation.chat import Message, chat_ids
from stages.generation.drafts import draft_exact
from stages.generation.generate import ends_of, find_written
from stages.generation.prompt_scores import PromptScores
from stages.generation.session import Text, TextSession
from stages.inspection.inspect import Inspected, inspect_ids
from stages.inspection.reading import MemoryReader, load_reader
from stages.inspection.request import Resolved
from stages.inspection.settings import Request
from stages.lineage.evaluation import MODELS_OWN
from stages.lineage.indexes import EXACT, holds_all
from stages.models.backbones.window_configs import HuggingFaceConfig
from stages.models.language_model import LanguageModel
from stages.retrieval.sources.exact import ExactSource
from stages.retrieval.sources.source import Needs
from stages.search.hidden import HiddenRows
from stages.serving.settings import MAX_STREAM
from stages.text.excerpt import TokenText

DATASTORE = "datastore"
"""Role of an artifact with rows."""
NONE = "none"
"""Name of the model alone."""


class ScoredToken(NamedTuple):
    """A token, its log-probability in nats, and those of the likeliest tokens, in falling order.

    Both are of one distribution, so the most probable token has exactly the largest number.
    """

    id: int
    log_p: float
    top: tuple[tuple[int, float], ...] = ()


class Prompt(NamedTuple):
    """A prompt to be scored."""

    text: Text
    """Its text, which was not read yet."""
    ids: Sequence[int]
    goes_on: bool
    """Whether the text is continued behind it."""


@dataclass(frozen=True)
class ServedMemories:
    """A model, and memories whose artifacts may be replaced while an address serves them."""

    resolved: Resolved
    request: Request
    name: str
    """Name of the memories."""

    @classmethod
    def of(cls, request: Request, store: Store, name: str) -> "ServedMemories":
        """Raises: UsageError or ArtifactError if they cannot be read, or the model writes no text."""
        return cls(find_written(request, store), request, name)

    def require_changeable(self) -> None:
        """Raises: UsageError if documents can be neither added nor deleted."""
        reason = self._why_fixed()
        if reason is not None:
            raise UsageError(
                f"The documents of {self.resolved.read['model'].reference} as it is served cannot change: {reason}. Leave "
                "--admin-token-file out."
            )

    def _why_fixed(self) -> str | None:
        read = self.resolved.read
        if MODELS_OWN in read:
            return "neighbours enter its hidden states"
        for reading in self.resolved.readings:
            for name, settings in zip(reading.sources, reading.source_settings, strict=True):
                if not settings.hides_rows:
                    return f"the memory {name} cannot leave them out"
        if not (DATASTORE in read or EXACT in read):
            return "none of its memories reads any"
        if DATASTORE in read and not holds_all(read["index"]):
            return f"{read['index'].reference} leaves rows out"
        return None

    def open(
        self,
        artifacts: Mapping[str, Artifact] | None = None,
        generation: int = 0,
        model: LanguageModel | None = None,
    ) -> "Engine":
        """Open the memories, and the model unless that is given.

        Args:
            artifacts: by role, those that are read instead of the first ones.
        """
        resolved = replace(self.resolved, read={**self.resolved.read, **(artifacts or {})})
        reader = load_reader(resolved, self.request, model)
        sessions = {self.name: TextSession(reader)} if reader.policy is not None else {}
        return Engine({**sessions, NONE: TextSession(without_memories(reader))}, generation)


# Compared by identity: questions about one engine are answered together.
@dataclass(frozen=True, eq=False)
class Engine:
    """A model with its memories, and without.

    `sessions`: texts that are read with each memory, by its name; all share the model.
    """

    sessions: Mapping[str, TextSession]
    generation: int = 0
    """Number of changes of the documents before it was opened."""

    @classmethod
    def open(cls, request: Request, store: Store, memory: str) -> "Engine":
        """Load a model with the memories of a request.

        Args:
            memory: name of these memories.
        Raises: as of `ServedMemories.of`.
        """
        return ServedMemories.of(request, store, memory).open()

    @property
    def hidden(self) -> dict[str, HiddenRows]:
        """Rows that no reading finds, by the role of their artifact."""
        hidden: dict[str, HiddenRows] = {}
        for session in self.sessions.values():
            for source, memory in session.reader.range_reader.memories.items():
                hidden |= source.hidden_rows(memory)
        return hidden

    def hide(self, rows: Mapping[str, np.ndarray]) -> None:
        """Hide ranges of rows, int64 [h, 2], by the role of their artifact."""
        hidden = self.hidden
        for role, ranges in rows.items():
            hidden[role].hide(ranges)

    @property
    def model(self) -> LanguageModel:
        """The model, which later generations share."""
        return self.reader(NONE).range_reader.model

    def reader(self, memory: str) -> MemoryReader:
        """The model with these memories; alone, if it has none of this name."""
        return self.sessions.get(memory, self.sessions[NONE]).reader

    # The model

    @property
    def text(self) -> TokenText:
        """The tokenizer."""
        return self.reader(NONE).text

    @cached_property
    def label(self) -> Callable[[int], str]:
        """The text of one token by itself, as `TokenText.label`, kept for each."""
        return cache(self.text.label)

    @property
    def start(self) -> int:
        """The first input of a text of no token."""
        return self.reader(NONE).range_reader.split_reader.corpus.eos

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that end a text; where `<eos>` ends a line, none does."""
        return frozenset() if self.text.eos_is_newline else ends_of(self.reader(NONE))

    @property
    def chat_template(self) -> str | None:
        """The form of conversations, as a Jinja template; None: the model has none."""
        config = self.reader(NONE).range_reader.model.config
        chat = config.chat if isinstance(config, HuggingFaceConfig) else None
        return None if chat is None else chat.template

    def chat_ids(self, messages: Sequence[Message]) -> list[int]:
        """Ids of a conversation, up to where the model answers.

        Raises: UsageError for a model without a template; DataError if that refuses.
        """
        return chat_ids(self.reader(NONE), messages)

    @property
    def vocabulary_size(self) -> int:
        """One more than the largest id of a prompt."""
        vocabulary = self.reader(NONE).range_reader.model.config.vocab_size or 0
        return min(self.text.vocabulary_size, vocabulary)

    @property
    def context(self) -> int:
        """Maximum number of tokens of a prompt."""
        reader = self.reader(NONE).range_reader
        if reader.model.config.carries_state:
            return MAX_STREAM
        return reader.split_reader.windows.context

    def without_start(self, ids: Sequence[int]) -> Sequence[int]:
        """A prompt without `<eos>` at its start, where the model reads one before every text."""
        reads_eos = self.text.start is None
        return ids[1:] if reads_eos and ids and ids[0] == self.start else ids

    # Texts

    @contextmanager
    def reading(self, memory: str, ids: Sequence[int]) -> Iterator[Text]:
        """A text that begins with a prompt, as long as it is continued."""
        session = self.sessions[memory]
        text = session.add(self.without_start(ids))
        try:
            yield text
        finally:
            session.drop(text)

    def score(
        self, memory: str, prompts: Sequence[Prompt], top: int
    ) -> list[list[ScoredToken | None]]:
        """Score the tokens of prompts that were not read yet, each behind those before it.

        The first is None, as clients expect, whether something precedes it or not.

        Args:
            top: number of likeliest tokens listed for each.
        """
        session = self.sessions[memory]
        top = min(top, self.vocabulary_size)
        scores: dict[Text, PromptScores] = {}
        for goes_on in (False, True):
            texts = [prompt.text for prompt in prompts if prompt.goes_on == goes_on]
            scores |= zip(texts, session.score(texts, top, goes_on), strict=True)
        return [self._scored_prompt(prompt.ids, scores[prompt.text]) for prompt in prompts]

    def _scored_prompt(self, ids: Sequence[int], scores: PromptScores) -> list[ScoredToken | None]:
        if not ids:
            return []
        scored = scored_tokens(scores, self.without_start(ids))
        return [None, *scored[len(scored) - len(ids) + 1 :]]

    def draft(self, memory: str, text: Text, max_tokens: int) -> list[int]:
        """A guess at the next tokens of a text, by exact matches; none without these.

        Several texts are continued in one pass, which guesses of some would make longer for all.
        Where the next token needs no pass, none is guessed.

        Args:
            max_tokens: maximum number of tokens.
        """
        session = self.sessions[memory]
        matches = ExactSource in session.reader.range_reader.memories
        is_alone = len(session.texts) == 1
        if not (matches and is_alone) or text.following is not None:
            return []
        return draft_exact(session.reader, text, max_tokens)

    def next_log_probs(
        self, memory: str, texts: Sequence[tuple[Text, Sequence[int]]]
    ) -> list[np.ndarray]:
        """Log-probabilities of every token behind each text and behind each token of its draft,
        with all memories; natural log, float64 [n, V].

        Args:
            texts: each with the n - 1 tokens of its draft.
        """
        read = self.sessions[memory].read(texts)
        return [distributions.log_p.double().cpu().numpy() for distributions in read]

    def accept(self, memory: str, text: Text, tokens: Sequence[int]) -> None:
        """Set the next tokens of a text: first ones of its draft, then one more."""
        self.sessions[memory].accept(text, tokens)

    def attribute(self, memory: str, text: Text, contexts: int) -> Inspected | None:
        """The sources of the probability of each token of a text that something precedes; None if
        there is no such token.

        Args:
            contexts: maximum number of passages for a token.
        """
        ids = text.passage.ids.tolist()
        return inspect_ids(self.reader(memory), ids, contexts, text.first) if ids else None


@dataclass(frozen=True)
class NextTokens:
    """Questions for the next tokens of texts: a text, and the tokens of its draft."""

    engine: Engine
    memory: str

    def answers(self, items: Sequence[tuple[Text, Sequence[int]]]) -> list[np.ndarray]:
        """As of `Engine.next_log_probs`."""
        return self.engine.next_log_probs(self.memory, items)


@dataclass(frozen=True)
class Scores:
    """Questions for the scores of prompts; those that list as many tokens are read together."""

    engine: Engine
    memory: str
    top: int

    def answers(self, items: Sequence[Prompt]) -> list[list[ScoredToken | None]]:
        """As of `Engine.score`."""
        return self.engine.score(self.memory, items, self.top)


def answer_for(about: NextTokens | Scores, items: Sequence[Any]) -> Sequence[Any]:
    """Answers to questions about the same, as the worker asks for them."""
    return about.answers(items)


def without_memories(reader: MemoryReader) -> MemoryReader:
    """The same model alone; a memory in its hidden states stays, as in `--memory none`."""
    alone = replace(reader.range_reader, external=None, needs=Needs(), memories={})
    return replace(reader, range_reader=alone, policy=None, memories=[])


def scored_tokens(scores: PromptScores, ids: Sequence[int]) -> list[ScoredToken]:
    """The scores of consecutive tokens, one by one."""
    columns = (scores.log_p, scores.top_ids, scores.top_log_p)
    rows = zip(ids, *(column.tolist() for column in columns), strict=True)
    return [
        ScoredToken(id, log_p, tuple(zip(top_ids, top_log_p, strict=True)))
        for id, log_p, top_ids, top_log_p in rows
    ]


def drawn_token(log_p: np.ndarray, token: int, top: int) -> ScoredToken:
    """A token with its scores, from the log-probabilities of all tokens, [V]; ties by id.

    >>> drawn_token(np.array([-1.5, -0.5, -1.5]), 2, top=2)
    ScoredToken(id=2, log_p=-1.5, top=((1, -0.5), (0, -1.5)))
    """
    order = np.argsort(-log_p, kind="stable")[:top] if top else ()
    likeliest = tuple((int(id), float(log_p[id])) for id in order)
    return ScoredToken(token, float(log_p[token]), likeliest)
