"""What a scored range leaves behind: sums for the report, and the scores of its tokens."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stages.evaluation.last_word import LastWords
from stages.evaluation.passage import Passage, RowScores, summed


def shard_record(
    passage: Passage,
    start: int,
    stop: int,
    outside: np.ndarray | None,
    last_words: LastWords | None,
    accuracy_at: Sequence[int],
) -> dict[str, Any]:
    """What the report needs of tokens [start, stop); see `stages.evaluation.report.Totals`.

    Args:
        passage: the c tokens of them that count.
        outside: bool [stop - start], tokens in no paragraph that stands in the training text, if known.
        last_words: the tokens that count, and the passages that they belong to; None: all tokens do.
        accuracy_at: numbers of neighbours K for which retrieval accuracy is counted.
    """
    scores: list[Passage | RowScores] = [passage, *passage.rows]
    wrong = None
    if last_words is not None:
        wrong = [last_words.wrong_passages(start, stop, _numpy(one.correct)) for one in scores]
        outside = None if outside is None else outside[last_words.scored(start, stop)]
    new = None if outside is None else torch.from_numpy(outside).to(passage.log_p.device)
    return {
        "tokens": len(passage.log_p),
        "nll": [-summed(one.log_p) for one in scores],
        "nll_outside": None if new is None else [-summed(one.log_p[new]) for one in scores],
        "tokens_outside": 0 if outside is None else int(outside.sum()),
        "nll_by_cutoff": [row.nll_by_cutoff.tolist() for row in passage.rows],
        "hits": {str(k): int((passage.rows[0].first_hits < k).sum()) for k in accuracy_at},
        "wrong": wrong,
        "seconds": passage.seconds,
    }


def _numpy(correct: Tensor | None) -> np.ndarray:
    assert correct is not None, "the likeliest token was not looked at"
    return correct.cpu().numpy()


def token_scores(passage: Passage) -> Mapping[str, np.ndarray]:
    """The arrays of `scores.zarr` for c tokens; natural logs, float32."""
    main: RowScores | None = passage.rows[0] if passage.rows else None
    alone = passage.log_p.cpu().numpy()
    arrays = {
        "target": passage.targets.to(torch.int32).cpu().numpy(),
        "logp": alone if main is None else main.log_p.cpu().numpy(),
        "logp_lm": alone,
        "log_z": passage.log_z.cpu().numpy(),
    }
    if main is not None:
        arrays["logp_memory"] = main.log_p_mem.cpu().numpy()
    return arrays
