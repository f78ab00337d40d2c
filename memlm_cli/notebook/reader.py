"""Models with memories that read and write texts in a notebook."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import log
from typing import Any

import numpy as np

from memlm_cli.notebook.artifacts import Columns, Page, columns
from memlm_cli.notebook.artifacts import text as text_of
from memlm_cli.progress import ConsoleReporter
from stages.arguments import count
from stages.artifacts.store import Store
from stages.generation import GenerationRequest
from stages.generation.generate import GenerationStep, generate_each, open_writer, prompt_ids
from stages.inspection.inspect import Inspected, TokenView, inspect_passage
from stages.inspection.page import page
from stages.inspection.reading import MemoryReader, load_reader, text_distributions
from stages.inspection.request import Request, Resolved, find
from stages.validation import validated


class Reader:
    """A model with its memories, loaded at the first reading; the first writing loads it again with
    other windows.
    """

    def __init__(self, store: Store, request: Request) -> None:
        self._store = store
        self._request = request
        self._found: Resolved = find(request, store, None)

    def __repr__(self) -> str:
        model, *others = (
            f"{artifact.reference}"
            for role, artifact in self._found.read.items()
            if role != "tokens"
        )
        return f"<memlm reader of {model}{' with ' if others else ''}{', '.join(others)}>"

    def score(self, text: str) -> "Scores":
        """Score a text from its first token on, as `memlm inspect --text` does."""
        return Scores(self.inspected(text, 0), self, text)

    def distributions(self, text: str) -> np.ndarray:
        """Log-probabilities of the whole vocabulary before each token of a text, with all memories.

        Returns: float32 [tokens, vocabulary], in nats; a row for each token of `score`.
        """
        text_of(text, "text")
        loaded = self.loaded
        with ConsoleReporter("score", soon=True):
            return text_distributions(loaded, loaded.text.ids(text))

    def inspected(self, text: str, contexts: int) -> Inspected:
        """A text token by token, each with up to `contexts` of its retrieved contexts."""
        text_of(text, "text")
        loaded = self.loaded
        with ConsoleReporter("score", soon=True):
            return inspect_passage(loaded, text, contexts)

    def generate(self, prompt: str | Sequence[str] = "", **options: Any) -> Any:
        """Generate text after a prompt, or a list of texts after several; options are those of
        `parts`.

        Several are written together, `batch_size` at a time, and each is what it is alone.
        """
        with ConsoleReporter("generate", soon=True):
            if isinstance(prompt, str):
                return "".join(self.parts(prompt, **options))
            texts = dict(self.texts(prompt, **options))
            return [texts[number] for number in range(len(texts))]

    def parts(self, prompt: str = "", **options: Any) -> Iterator[str]:
        """Generate text after a prompt, and yield it token by token.

        Args:
            options: `max_tokens`, `temperature`, `top_k`, `top_p`, `seed`, `stop`, `stop_at_eos`,
            `chat`, as of `memlm generate`.
        """
        for step in self._steps([prompt], options):
            for token in step.tokens:
                yield token.text
            yield step.rest

    def texts(self, prompts: Sequence[str], **options: Any) -> Iterator[tuple[int, str]]:
        """Generate texts after several prompts; yield each with its number when it ends."""
        texts = [""] * len(prompts)
        for step in self._steps(prompts, options):
            texts[step.number] += "".join(token.text for token in step.tokens) + step.rest
            if step.ended is not None:
                yield step.number, texts[step.number]

    def _steps(
        self, prompts: Sequence[str], options: Mapping[str, Any]
    ) -> Iterator[GenerationStep]:
        """Steps of the texts after some prompts."""
        for prompt in prompts:
            text_of(prompt, "prompt")
        request = validated(GenerationRequest, dict(options))
        ids = [
            prompt_ids(self._writer, request.model_copy(update={"prompt": prompt}))
            for prompt in prompts
        ]
        return generate_each(self._writer, ids, request)

    @property
    def memories(self) -> list[dict[str, Any]]:
        """The readings with their hyperparameters."""
        return self.loaded.memories

    @cached_property
    def loaded(self) -> MemoryReader:
        """The reader that scores texts."""
        with ConsoleReporter("read", soon=True):
            return load_reader(self._found, self._request)

    @cached_property
    def _writer(self) -> MemoryReader:
        with ConsoleReporter("read", soon=True):
            return open_writer(self._request, self._store)


class Scores(dict[str, np.ndarray]):
    """A text token by token: `id`, `token`, `logp`, `logp_lm` (nats; with all memories, and by the
    model), `gain`.

    Measurements of probes are further columns.
    """

    def __init__(self, inspected: Inspected, reader: Reader, text: str) -> None:
        super().__init__(columns([_scored(token) for token in inspected.tokens]))
        self._reader = reader
        self._text = text

    def neighbors(self, k: int = 8) -> Columns:
        """The k contexts with the largest share in the prediction of each token, by descending
        weight.

        Columns: `position` of the token, `rank`, `weight` within the reading's memory, `carried`
        (what it adds to the probability of the token it holds), `right` (whether that is the token
        that came), `split`, `row`, `document`, and the text `before` it, `next`, `after`.
        """
        inspected = self._reader.inspected(self._text, count(k, "k"))
        rows = []
        for token in inspected.tokens:
            for rank, context in enumerate(token.contexts):
                source = context.source
                row = {
                    "position": token.position,
                    "rank": rank,
                    "weight": context.weight,
                    "carried": context.carried,
                    "right": context.right,
                    "split": source.split,
                    "row": source.row,
                    "document": source.name or str(source.document),
                    "before": source.before,
                    "next": source.token,
                    "after": source.after,
                }
                rows.append(row)
        return columns(rows)

    def page(self) -> Page:
        """The page of `memlm inspect --html`; a notebook shows it."""
        return Page(page(self._reader.inspected(self._text, 4)))

    def _repr_html_(self) -> str:
        return self.page()._repr_html_()


def _scored(token: TokenView) -> dict[str, Any]:
    figures = {
        "id": token.id,
        "token": token.text or token.label,
        "logp": _log(token.final),
        "logp_lm": _log(token.model),
        "gain": token.gain,
    }
    return figures | token.columns


def _log(probability: float) -> float:
    return log(probability) if probability > 0 else -float("inf")
