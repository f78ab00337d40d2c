"""Beam search for all sentences of a batch together; a row is one live hypothesis."""

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
        return max(self.finished, key=lambda one: one.score)


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
    values, tokens = log_probs.topk(count)
    ambiguous = ((log_probs >= values[:, -1:]).sum(-1) > count).nonzero()[:, 0]
    if len(ambiguous):
        tokens[ambiguous] = (
            log_probs[ambiguous].sort(descending=True, stable=True).indices[:, :count]
        )
    tokens = tokens.sort().values
    values, order = log_probs.gather(1, tokens).sort(descending=True, stable=True)
    return Candidates(sums[:, None] + values.double(), tokens.gather(1, order))


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
    sentences = [_Sentence(length) for length in longest]
    state = decoder.begin(source, mask)
    sums = torch.zeros(len(source), dtype=torch.float64, device=device)
    history = torch.full((len(source), 1), decoder.start, device=device)
    of_row = list(range(len(source)))
    while of_row:
        step = decoder.step(history[:, -1], state)
        log_probs = (
            step.log_probs if memory is None else memory(step, torch.tensor(of_row, device=device))
        )
        if decoder.never:
            log_probs = log_probs.index_fill(
                1, torch.tensor(decoder.never, device=device), -torch.inf
            )
        found = best_tokens(log_probs, sums, 2 * settings.beam)
        if not (found.log_prob[:, 0] > -torch.inf).all():
            raise ArtifactError(
                "The model gives no token a valid probability: train or import it again."
            )
        going = _advance(sentences, of_row, found, history, decoder.eos, settings)
        chosen = torch.tensor([row for row, _, _ in going], dtype=torch.long, device=device)
        tokens = torch.tensor([token for _, token, _ in going], dtype=torch.long, device=device)
        sums = torch.tensor(
            [log_prob for _, _, log_prob in going], dtype=torch.float64, device=device
        )
        of_row = [of_row[row] for row, _, _ in going]
        if of_row:
            history = torch.cat((history[chosen], tokens[:, None]), 1)
            state = select_rows(step.state, chosen)
    return [sentence.best for sentence in sentences]


_LiveRow = tuple[int, int, float]
"""A live row: the row that it continues, its new token, and log p so far."""


def _advance(
    sentences: Sequence[_Sentence],
    of_row: Sequence[int],
    found: Candidates,
    history: Tensor,
    eos: int,
    settings: BeamSettings,
) -> list[_LiveRow]:
    """Finish hypotheses that end, and return the rows that stay live, in order of sentence."""
    length = history.shape[1]
    going: list[_LiveRow] = []
    for number, candidates in _by_sentence(of_row, found):
        sentence = sentences[number]
        live: list[_LiveRow] = []
        for place, (log_prob, row, token) in enumerate(candidates[: 2 * settings.beam]):
            if token == eos and place < settings.beam:
                sentence.finished.append(
                    _finished(history[row], log_prob, length, settings, cut=False)
                )
            elif token != eos and len(live) < settings.beam:
                live.append((row, token, log_prob))
        if len(sentence.finished) >= settings.beam or not live:
            continue
        if length >= sentence.longest:
            for row, token, log_prob in live:
                tokens = torch.cat((history[row], history.new_tensor([token])))
                sentence.finished.append(_finished(tokens, log_prob, length, settings, cut=True))
        elif not _is_settled(sentence, live[0][2], settings):
            going += live
    return going


def _by_sentence(
    of_row: Sequence[int], found: Candidates
) -> list[tuple[int, list[tuple[float, int, int]]]]:
    """Candidates (log p, row, token) of each live sentence, the best first; ties by row, then
    token.
    """
    candidates: dict[int, list[tuple[float, int, int]]] = {}
    log_probs, tokens = found.log_prob.tolist(), found.token.tolist()
    for row, number in enumerate(of_row):
        several = zip(log_probs[row], tokens[row], strict=True)
        candidates.setdefault(number, []).extend(
            (p, row, token) for p, token in several if p > float("-inf")
        )
    order = {
        number: sorted(some, key=lambda one: (-one[0], *one[1:]))
        for number, some in candidates.items()
    }
    return list(order.items())


def _finished(
    tokens: Tensor, log_prob: float, length: int, settings: BeamSettings, cut: bool
) -> Hypothesis:
    return Hypothesis(
        tokens[1:].tolist(), log_prob / length**settings.length_penalty, log_prob, cut
    )


def _is_settled(sentence: _Sentence, best_live: float, settings: BeamSettings) -> bool:
    """Whether no live hypothesis can beat the best finished one.

    The log p of a live one can only fall, and the maximum length is the largest divisor.
    """
    if not sentence.finished or settings.length_penalty < 0:
        return False
    return best_live / sentence.longest**settings.length_penalty <= sentence.best.score
