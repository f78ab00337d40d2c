"""Beam search for all sentences of a batch together; a row is one live hypothesis."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from stages.errors import ArtifactError
from stages.translation.decoder import Decoder, ReadMemory, select_rows


class BeamSettings(NamedTuple):
    """Settings of the search and of the score."""

    beam: int = 4
    """B, maximum number of live hypotheses of a sentence; 1 is greedy search."""
    length_penalty: float = 0.6
    """α of score = log p / length^α. Larger favours longer translations; 0 chooses the most
    probable.
    """


DEFAULT = BeamSettings()


class Hypothesis(NamedTuple):
    """A finished translation."""

    tokens: list[int]
    """Tokens without start and end."""
    score: float
    """log p / length^α; the length includes the end token."""
    log_prob: float
    """Natural log of its probability, end token included."""
    cut: bool
    """Whether it reached the maximum length without an end token."""


@dataclass
class _Sentence:
    """The state of the search for one sentence."""

    longest: int
    finished: list[Hypothesis] = field(default_factory=list)

    @property
    def best(self) -> Hypothesis:
        """The hypothesis with the best score; ties go to the first that finished."""
        return max(self.finished, key=lambda hypothesis: hypothesis.score)


class Candidates(NamedTuple):
    """Continuations of some rows, the best first."""

    log_prob: Tensor
    """Log-probability of the row with its new token, float64 [R, C]."""
    token: Tensor
    """The new token, int64 [R, C]."""


def best_tokens(
    log_probs: Float[Tensor, "R V"], sums: Float[Tensor, " R"], count: int
) -> Candidates:
    """The best `count` continuations of each row; ties in order of token id.

    `topk` alone breaks ties in any way. So a row is sorted completely if not all ties for its last
    place fit.

    >>> best_tokens(torch.tensor([[-2.0, -1.0, -2.0, -1.0]]), torch.zeros(1, dtype=torch.float64), 3).token
    tensor([[1, 3, 0]])
    """
    count = min(count, log_probs.shape[1])
    best, tokens = log_probs.topk(count)  # [R, C] each

    # More tokens than `count` are as good as the last one: only a stable sort chooses among them.
    num_as_good = (log_probs >= best[:, -1:]).sum(-1)
    tied_rows = (num_as_good > count).nonzero()[:, 0]
    if len(tied_rows):
        sorted_tokens = log_probs[tied_rows].sort(descending=True, stable=True).indices
        tokens[tied_rows] = sorted_tokens[:, :count]

    # Stable sorts, first by token and then by probability, put equal ones in the order of tokens.
    tokens = tokens.sort().values
    best, order = log_probs.gather(1, tokens).sort(descending=True, stable=True)
    log_prob = sums[:, None] + best.double()
    return Candidates(log_prob, tokens.gather(1, order))


@torch.inference_mode()
def beam_search(
    decoder: Decoder,
    source: Int[Tensor, "N S"],
    mask: Tensor,
    longest: Sequence[int],
    settings: BeamSettings = DEFAULT,
    memory: ReadMemory | None = None,
) -> list[Hypothesis]:
    """Translate N sentences; a translation depends only on its own sentence.

    An end token among the best B continuations of a sentence finishes a hypothesis. The best B
    other continuations stay live. A sentence is done when B hypotheses are finished, or when no
    live one can beat the best of them. At the maximum length, live hypotheses are finished without
    an end token. Rows of finished sentences leave the batch.

    Args:
        source: tokens, padded.
        mask: tokens that count, bool [N, S].
        longest: maximum number of tokens in each sentence's translation, end token included.
        memory: computes log-probabilities with memory; None: the model alone.
    Raises: ArtifactError if no token has a probability.
    Source: Wu et al. 2016 (arXiv:1609.08144), section 7, with length^α for their penalty, as
    fairseq has it.
    """
    device = source.device
    never = torch.tensor(decoder.never, device=device) if decoder.never else None
    sentences = [_Sentence(length) for length in longest]

    # One of R rows for each live hypothesis: its log p so far, its tokens, and its sentence.
    num_sentences = len(source)
    sums = torch.zeros(num_sentences, dtype=torch.float64, device=device)
    history = torch.full((num_sentences, 1), decoder.start, device=device)
    sentence_of_row = list(range(num_sentences))
    state = decoder.begin(source, mask)
    while sentence_of_row:
        step = decoder.step(history[:, -1], state)
        log_probs = step.log_probs  # [R, V]
        if memory is not None:
            log_probs = memory(step, torch.tensor(sentence_of_row, device=device))
        if never is not None:
            log_probs = log_probs.index_fill(1, never, -torch.inf)

        # Each of the best B may end, so twice as many are needed for B that stay live.
        candidates = best_tokens(log_probs, sums, 2 * settings.beam)
        # NaN is not larger either.
        if not (candidates.log_prob[:, 0] > -torch.inf).all():
            raise ArtifactError(
                "The model gives no token a valid probability: train or import it again."
            )

        live = _advance(sentences, sentence_of_row, candidates, history, decoder.eos, settings)
        if not live:
            break

        # Each live continuation becomes a row; several may continue one row.
        rows = [continuation.row for continuation in live]
        log_prob = [continuation.log_prob for continuation in live]
        tokens = torch.tensor([continuation.token for continuation in live], device=device)
        row_indices = torch.tensor(rows, device=device)
        sums = torch.tensor(log_prob, dtype=torch.float64, device=device)
        history = torch.cat((history[row_indices], tokens[:, None]), 1)
        sentence_of_row = [sentence_of_row[row] for row in rows]
        state = select_rows(step.state, row_indices)
    return [sentence.best for sentence in sentences]


class _Continuation(NamedTuple):
    """A row with one more token."""

    row: int
    """The row that it continues."""
    token: int
    """Its new token."""
    log_prob: float
    """Its log p so far, with the new token."""


def _advance(
    sentences: Sequence[_Sentence],
    sentence_of_row: Sequence[int],
    candidates: Candidates,
    history: Tensor,
    eos: int,
    settings: BeamSettings,
) -> list[_Continuation]:
    """Finish hypotheses that end, and return those that stay live, in order of sentence."""
    length = history.shape[1]
    all_live: list[_Continuation] = []
    for number, continuations in _by_sentence(sentence_of_row, candidates).items():
        sentence = sentences[number]
        live: list[_Continuation] = []
        for rank, continuation in enumerate(continuations[: 2 * settings.beam]):
            row, token, log_prob = continuation
            # An end below the best B is dropped: it neither finishes nor goes on.
            if token == eos and rank < settings.beam:
                hypothesis = _finished(history[row], log_prob, length, settings, cut=False)
                sentence.finished.append(hypothesis)
            elif token != eos and len(live) < settings.beam:
                live.append(continuation)

        if len(sentence.finished) >= settings.beam or not live:
            continue

        if length >= sentence.longest:
            for row, token, log_prob in live:
                tokens = torch.cat((history[row], history.new_tensor([token])))
                hypothesis = _finished(tokens, log_prob, length, settings, cut=True)
                sentence.finished.append(hypothesis)
        elif not _is_settled(sentence, live[0].log_prob, settings):
            all_live += live
    return all_live


def _by_sentence(
    sentence_of_row: Sequence[int], candidates: Candidates
) -> dict[int, list[_Continuation]]:
    """Continuations of each live sentence, the best first; ties by row, then token."""
    log_probs = candidates.log_prob.tolist()
    tokens = candidates.token.tolist()

    by_sentence: dict[int, list[_Continuation]] = {}
    for row, number in enumerate(sentence_of_row):
        continuations = by_sentence.setdefault(number, [])
        for log_prob, token in zip(log_probs[row], tokens[row], strict=True):
            # A token without probability does not continue a hypothesis.
            if log_prob > -math.inf:
                continuations.append(_Continuation(row, token, log_prob))

    for continuations in by_sentence.values():
        continuations.sort(key=_rank)
    return by_sentence


def _rank(continuation: _Continuation) -> tuple[float, int, int]:
    return -continuation.log_prob, continuation.row, continuation.token


def _finished(
    tokens: Tensor, log_prob: float, length: int, settings: BeamSettings, cut: bool
) -> Hypothesis:
    """A hypothesis from its tokens, the start included."""
    score = log_prob / length**settings.length_penalty
    return Hypothesis(tokens[1:].tolist(), score, log_prob, cut)


def _is_settled(sentence: _Sentence, best_live: float, settings: BeamSettings) -> bool:
    """Whether no live hypothesis can beat the best finished one.

    The log p of a live one can only fall, and the maximum length is the largest divisor.
    """
    if not sentence.finished or settings.length_penalty < 0:
        return False
    return best_live / sentence.longest**settings.length_penalty <= sentence.best.score
