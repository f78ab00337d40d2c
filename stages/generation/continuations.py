"""Scores of continuations, several of which may follow the same context."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from stages.generation.mixing import mixes_together
from stages.generation.prompt_scores import PromptScores
from stages.generation.session import Text, TextSession
from stages.inspection.reading import MemoryReader, continuation_scores


class _Context(NamedTuple):
    """A context, its text, and the distribution behind it, [1, V]."""

    ids: list[int]
    text: Text
    log_p: Tensor


class ContinuationScorer:
    """Scores continuations with all memories; a context that comes again is not read again."""

    def __init__(self, reader: MemoryReader) -> None:
        self._reader = reader
        self._session = TextSession(reader) if mixes_together(reader) else None
        self._latest: _Context | None = None

    def score(
        self, context: Sequence[int], continuation: Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Score a continuation; a text begins as in a `TextSession`. Nothing is read for no tokens.

        Longer texts than a window are read as `continuation_scores` does.
        Returns: log-probabilities, nats, float [c]; whether each token is the argmax, bool [c].
        """
        if not continuation:
            return np.zeros(0), np.zeros(0, bool)
        of_range = self._reader.range_reader
        length = len(context) + len(continuation)
        is_longer = length > of_range.split_reader.windows.context and not of_range.carries_state
        if self._session is None or is_longer:
            return continuation_scores(self._reader, context, continuation)

        reading = self._read(self._session, list(context))
        parts = [PromptScores.of(reading.log_p, continuation[:1], 0)]
        if len(continuation) > 1:
            branch = self._session.fork(reading.text)
            self._session.accept(branch, continuation[:1])
            (rest,) = self._session.read([(branch, continuation[1:-1])])
            parts.append(PromptScores.of(rest.log_p, continuation[1:], 0))
            self._session.drop(branch)
        scores = PromptScores.joined(parts, 0)
        return scores.log_p, scores.is_best

    def _read(self, session: TextSession, ids: list[int]) -> _Context:
        """The context, read now unless it is the latest."""
        if self._latest is None or self._latest.ids != ids:
            if self._latest is not None:
                session.drop(self._latest.text)
            text = session.add(ids)
            self._latest = _Context(ids, text, session.step([text]))
        return self._latest
