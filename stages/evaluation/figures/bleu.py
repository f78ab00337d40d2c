"""BLEU and chrF of translations, by sacrebleu, and the paired bootstrap of a difference in BLEU.

Sources: Papineni et al. 2002 (BLEU), Popović 2015 (chrF), Post 2018 (arXiv:1804.08771, sacrebleu
and its signatures), Koehn 2004 (Statistical Significance Tests for Machine Translation Evaluation,
section 3).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from stages.errors import DataError, UsageError, first_line
from stages.evaluation.config import BleuSettings
from stages.evaluation.figures.intervals import Bootstrap


class Scores(NamedTuple):
    """Figures of a whole split; BLEU and chrF in points, from 0 to 100."""

    bleu: float
    chrf: float
    brevity_penalty: float
    length_ratio: float
    """Tokens of the translations per token of the references, as BLEU counts tokens."""
    signature: str
    chrf_signature: str


def require_sacrebleu(settings: BleuSettings) -> None:
    """Raises: UsageError if the package is missing, or cannot open the tokenizer."""
    try:
        import sacrebleu.metrics as metrics
    except ImportError:
        raise UsageError(
            "BLEU needs the package sacrebleu: pip install 'memlm[mt]', or --beam 0."
        ) from None
    try:
        metrics.BLEU(**settings.model_dump())
    except Exception as error:  # whatever its tokenizers raise
        known = ", ".join(sorted(metrics.BLEU.TOKENIZERS))
        raise UsageError(
            f"--bleu-tokenize {settings.tokenize}: {first_line(error)} (known: {known})."
        ) from None


def corpus_scores(
    hypotheses: Sequence[str], references: Sequence[str], settings: BleuSettings
) -> Scores:
    """Score the translations of a split as a whole, with one reference for each.

    Raises: DataError if there are none, or their numbers differ: sacrebleu ignores surplus
    references.
    """
    _require_pairs(hypotheses, references)
    bleu, chrf = _metrics(settings)
    scored, characters = (
        metric.corpus_score(list(hypotheses), [list(references)]) for metric in (bleu, chrf)
    )
    return Scores(
        scored.score,
        characters.score,
        scored.bp,
        scored.ratio,
        str(bleu.get_signature()),
        str(chrf.get_signature()),
    )


def sentence_chrf(
    hypotheses: Sequence[str], references: Sequence[str], settings: BleuSettings
) -> list[float]:
    """chrF of each sentence; unlike BLEU, it is meaningful for a single sentence."""
    chrf = _metrics(settings)[1]
    return [
        chrf.sentence_score(one, [other]).score
        for one, other in zip(hypotheses, references, strict=True)
    ]


@dataclass(frozen=True)
class BleuDifference:
    """BLEU of B minus BLEU of A on the same sentences, in points."""

    a: float
    b: float
    interval: tuple[float, float] | None
    """Confidence interval of the difference over resampled sentences; None if no resample gives a
    number.
    """
    p_value: float
    """Two-sided p-value of the difference, as computed by sacrebleu, but 1 if BLEU is equal.

    sacrebleu itself calls a system significantly better than itself, since no resample differs from
    the mean.
    """

    @property
    def difference(self) -> float:
        return self.b - self.a


def bleu_difference(
    a: Sequence[str],
    b: Sequence[str],
    references: Sequence[str],
    settings: BleuSettings,
    bootstrap: Bootstrap,
) -> BleuDifference:
    """Compare two translations of the same sentences, with a paired bootstrap.

    Raises: DataError, as `corpus_scores`.
    """
    for one in (a, b):
        _require_pairs(one, references)
    # BLEU is computed from sums over sentences, so resamples do not score any sentence again
    counts = [_sentence_counts(one, references, settings) for one in (a, b)]
    sums = bootstrap.resampled_sums(np.concatenate(counts, axis=1))
    drawn = [np.array([_bleu_of_counts(row) for row in half]) for half in np.hsplit(sums, 2)]
    own = [_bleu_of_counts(one.sum(axis=0)) for one in counts]
    apart = np.abs(drawn[1] - drawn[0])
    # shifted to a mean of 0: the null hypothesis that both are equally good
    larger = int((apart - apart.mean() > abs(own[1] - own[0])).sum())
    interval = bootstrap.interval(drawn[1] - drawn[0])
    p_value = 1.0 if own[0] == own[1] else (larger + 1) / (bootstrap.samples + 1)
    return BleuDifference(own[0], own[1], interval, p_value)


def _sentence_counts(
    hypotheses: Sequence[str], references: Sequence[str], settings: BleuSettings
) -> np.ndarray:
    """Counts for BLEU, float64 [n, 10]: tokens of both sides, then matching n-grams, then all
    n-grams.
    """
    import sacrebleu.metrics

    bleu: Any = sacrebleu.metrics.BLEU(
        **settings.model_dump(), effective_order=True
    )  # else each sentence warns
    scored = [
        bleu.sentence_score(one, [other]) for one, other in zip(hypotheses, references, strict=True)
    ]
    return np.array(
        [[one.sys_len, one.ref_len, *one.counts, *one.totals] for one in scored], dtype=np.float64
    )


def _bleu_of_counts(counts: np.ndarray) -> float:
    import sacrebleu.metrics

    right, total = np.split(counts[2:], 2)
    lengths = int(counts[0]), int(counts[1])
    bleu = sacrebleu.metrics.BLEU
    scored = bleu.compute_bleu(
        right.tolist(), total.tolist(), lengths[0], lengths[1], smooth_method="exp"
    )
    return float(scored.score)


def _metrics(settings: BleuSettings) -> tuple[Any, Any]:
    import sacrebleu.metrics

    given = settings.model_dump()
    return sacrebleu.metrics.BLEU(**given, force=True), sacrebleu.metrics.CHRF(
        lowercase=settings.lowercase
    )


def _require_pairs(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if not references or len(hypotheses) != len(references):
        raise DataError(
            f"BLEU compares {len(hypotheses):,} translations with {len(references):,} references; as many of both "
            "must be there, and at least one."
        )
