"""The end of a text, scored behind what stands before it: what multiple-choice tasks ask for."""

from collections.abc import Sequence

import numpy as np

from stages.encoding.carried_state import CarriedState
from stages.evaluation.score_range import score_range
from stages.inspection.passages import PASSAGE, Passage
from stages.inspection.reading import BLOCK_TOKENS, MemoryReader


def continuation_scores(
    reader: MemoryReader, context: Sequence[int], continuation: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Score tokens behind others, as one passage behind a lone `<eos>`, with all memories.

    A model that reads windows reads one: the last L inputs, L its context, of which `<eos>` may not be one; a longer
    continuation is read in more. Of a backbone that carries state all of the text counts.

    Returns: log-probabilities of the continuation's tokens, nats, float64 [c]; whether no token is likelier, bool [c].
    """
    ids = [*context, *continuation]
    kept = len(ids)
    if not reader.range_reader.carries_state:
        kept = min(kept, max(reader.range_reader.reader.windows.context, len(continuation)))
    first = ids[-kept - 1] if kept < len(ids) else None
    passage = Passage(ids[-kept:])
    return _scored(reader.of_passage(passage, first), len(passage) - len(continuation), len(passage))


def text_log_prob(reader: MemoryReader, ids: Sequence[int]) -> float:
    """Summed log-probability of a text behind a lone `<eos>`, nats, read in windows as an evaluation reads a split."""
    log_p, _ = _scored(reader.of_passage(Passage(ids)), 0, len(ids))
    return float(log_p.sum())


def _scored(reader: MemoryReader, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens [start, stop) of a passage."""
    log_p, best = [np.zeros(0)], [np.zeros(0, bool)]
    carried = reader.carried(PASSAGE, start) if start else CarriedState()
    policies = [] if reader.policy is None else [reader.policy]
    for begin in range(start, stop, BLOCK_TOKENS):
        result = reader.range_reader.read(PASSAGE, begin, min(begin + BLOCK_TOKENS, stop), carried)
        scores = score_range(reader.range_reader, result, policies)
        final = scores.rows[0] if scores.rows else scores
        log_p.append(final.log_p.double().cpu().numpy())
        best.append(final.columns["correct"].cpu().numpy())
        carried = result.after
    return np.concatenate(log_p), np.concatenate(best)
