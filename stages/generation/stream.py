"""A text that a model and its memories write: the distribution of its next token, then the token, and so on."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from stages.evaluation.encoding.history import History
from stages.evaluation.evaluator import Evaluator
from stages.evaluation.readings.consulted import Consulted
from stages.evaluation.results.range_scores import RowSettings
from stages.evaluation.tuning.grids import compose_dense
from stages.inspection.passages import PASSAGE, Passage
from stages.inspection.reading import MemoryReader

ANY = 0
"""Stands in the place of the token that is not there yet; what is read of its own position does not see it."""


class Stream:
    """Tokens so far, and what the model and its memories take on from them."""

    def __init__(self, reader: MemoryReader, prompt: Sequence[int]) -> None:
        """Args:
        reader: the model and its readings.
        prompt: tokens that stand there already, after a lone `<eos>`; may be empty.
        """
        self.passage = Passage(prompt)
        self.reader = reader.of_passage(self.passage)
        self._history = self.reader.history(PASSAGE, len(prompt)) if prompt else History()
        self._after: History | None = None

    @property
    def tokens(self) -> list[int]:
        """All tokens, the prompt's first."""
        return [int(id) for id in self.passage.ids]

    def consult(self) -> Consulted:
        """The position of the next token, with all that it reads; its target stands for no token."""
        place = len(self.passage)
        self.passage.append(ANY)
        consultation = self.reader.evaluator.consult(PASSAGE, place, place + 1, self._history)
        self._after = consultation.after
        return consultation.consulted

    def log_probs(self, consulted: Consulted) -> np.ndarray:
        """Log-probabilities of every next token with all memories read, natural log, [V]."""
        dense = dense_log_probs(self.reader.evaluator, consulted, self.reader.settings)
        found: np.ndarray = dense[0].double().cpu().numpy()
        return found

    def put(self, token: int) -> None:
        """Go on with a token in the place that was consulted."""
        assert self._after is not None, "the place of the token is consulted first"
        self.passage.put_last(token)
        self._history, self._after = _ending_with(self._after, token), None


def dense_log_probs(evaluator: Evaluator, consulted: Consulted, settings: RowSettings | None) -> Tensor:
    """Log-probabilities of every token with the evaluator's row read at its settings, float32 [n, V].

    Args:
        consulted: a range whose hidden states were kept.
        settings: None: the plain model.
    """
    hidden, log_z = consulted.scored.hidden, consulted.scored.log_z
    assert hidden is not None, "hidden states are kept where the tokens that count are told"
    log_p = evaluator.model.log_probs(hidden)
    if settings is None:
        return log_p
    done, parts = 0, []
    for rows, recalled in evaluator.rows[0].recall(consulted):
        n = len(log_z[rows])
        alone = log_p[done : done + n]
        parts.append(compose_dense(alone, log_z[rows], recalled, slice(0, n), settings.grids, settings.points))
        done += n
    return torch.cat(parts)


def _ending_with(history: History, token: int) -> History:
    """The history with another last token."""
    if history.tokens is None:
        return history
    tokens = history.tokens.clone()
    tokens[-1] = token
    return replace(history, tokens=tokens)
