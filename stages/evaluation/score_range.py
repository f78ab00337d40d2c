"""Scoring of a range: by the model alone, and by every row with the weights of its policy."""

from collections.abc import Sequence

import torch
from torch import Tensor

from stages.encoding.clock import Stopwatch
from stages.encoding.scoring import DENSE_SCORES
from stages.evaluation.figures.last_word import is_best
from stages.evaluation.range_reader import RangeReader, RangeResult
from stages.evaluation.range_scores import RangeScores, RowScores
from stages.models.language_model import LanguageModel
from stages.retrieval.retrieved import Retrieved
from stages.retrieval.scored_range import ScoredRange
from stages.retrieval.weights.policy import Weight, WeightPolicy


def score_range(reader: RangeReader, result: RangeResult, policies: Sequence[WeightPolicy]) -> RangeScores:
    """Score a range with the model alone and with every row, each with the weights of its policy."""
    scored_range = result.scored_range
    scored, counted = scored_range.lm, scored_range.counted_rows
    rows, seconds = [], [result.seconds.model]
    for policy in policies:
        shared = result.seconds.of(policy.row) + reader.recomputing_seconds(scored_range, policy.row)
        watch = Stopwatch(reader.reader.device)
        rows.append(_score_row(reader.model, scored_range, policy))
        seconds.append(shared + watch.lap())
    targets = scored.targets[counted]
    alone = {"log_p": scored.log_p[counted], "log_z": scored.log_z[counted]}
    if scored.hidden is not None:
        alone["correct"] = _correct(reader.model, scored.hidden, targets, alone["log_z"])
    return RangeScores(targets, alone, rows, seconds, result.observations)


def _score_row(model: LanguageModel, scored_range: ScoredRange, policy: WeightPolicy) -> RowScores:
    """Read a row's memory with the weights of its policy."""
    scored, sums = scored_range.lm, dict(policy.no_sums())
    columns, done = _empty_columns(scored_range, policy), 0
    for rows, retrieved in policy.reading_row.retrieve(scored_range):
        reads = policy.read(scored_range, rows, retrieved)
        part = slice(done, done + len(reads.log_p))
        columns["log_p"][part], columns["log_p_mem"][part] = reads.log_p, reads.log_p_mem
        columns["first_matches"][part] = retrieved[0].first_matches
        if isinstance(reads.weights[-1], Tensor):
            columns.setdefault("weights", torch.empty_like(columns["log_p"]))[part] = reads.weights[-1]
        if scored.hidden is not None:
            given = scored.hidden[part], scored.targets[rows], scored.log_z[rows]
            columns["correct"][part] = _correct(model, *given, (policy, retrieved, reads.weights))
        sums = {name: sums[name] + more for name, more in reads.sums.items()}
        done = part.stop
    return RowScores(columns, sums)


def _empty_columns(scored_range: ScoredRange, policy: WeightPolicy) -> dict[str, Tensor]:
    """Columns of all counted tokens, to be filled."""
    like = scored_range.lm.log_p[scored_range.counted_rows]
    columns = {
        "log_p": torch.empty_like(like),
        "log_p_mem": like.new_empty(len(like), len(policy.row.sources)),
        "first_matches": torch.empty_like(like, dtype=torch.int64),
    }
    if scored_range.lm.hidden is not None:
        columns["correct"] = torch.empty_like(like, dtype=torch.bool)
    return columns


def _correct(
    model: LanguageModel,
    hidden: Tensor,
    targets: Tensor,
    log_z: Tensor,
    memory: tuple[WeightPolicy, Sequence[Retrieved], Sequence[Weight]] | None = None,
) -> Tensor:
    """Whether each target is the argmax once memory, if any is retrieved, is read; bool [c]."""
    correct = [targets.new_empty(0, dtype=torch.bool)]
    step = max(1, DENSE_SCORES // (model.config.vocab_size or 1))
    for start in range(0, len(hidden), step):
        part = slice(start, start + step)
        log_p = model.log_probs(hidden[part])
        if memory is not None:
            policy, retrieved, weights = memory
            log_p = policy.read_dense(log_p, log_z[part], retrieved, part, weights)
        correct.append(is_best(log_p, targets[part]))
    return torch.cat(correct)
