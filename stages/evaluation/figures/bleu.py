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
    """Check that the package of BLEU is there. Raises: UsageError if it is missing, or cannot open
    the tokenizer.
    """
    try:
        import sacrebleu.metrics as metrics
    except ImportError:
        raise UsageError(
            "BLEU needs the package sacrebleu: pip install 'memlm[mt]', or --beam 0."
        ) from None
    try:
        metrics.BLEU(**settings.model_dump())
    except Exception as error:  # whatever its tokenizers raise
        tokenizers = ", ".join(sorted(metrics.BLEU.TOKENIZERS))
        raise UsageError(
            f"--bleu-tokenize {settings.tokenize}: {first_line(error)} (known: {tokenizers})."
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
    # sacrebleu takes lists of references: here one list, with a reference for each sentence.
    bleu_score = bleu.corpus_score(list(hypotheses), [list(references)])
    chrf_score = chrf.corpus_score(list(hypotheses), [list(references)])
    return Scores(
        bleu_score.score,
        chrf_score.score,
        bleu_score.bp,
        bleu_score.ratio,
        str(bleu.get_signature()),
        str(chrf.get_signature()),
    )


def sentence_chrf(
    hypotheses: Sequence[str], references: Sequence[str], settings: BleuSettings
) -> list[float]:
    """chrF of each sentence; unlike BLEU, it is meaningful for a single sentence."""
    chrf = _metrics(settings)[1]
    scores = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        scores.append(chrf.sentence_score(hypothesis, [reference]).score)
    return scores


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
    _require_pairs(a, references)
    _require_pairs(b, references)
    # BLEU is computed from sums over sentences, so resamples do not score any sentence again
    counts_a = _sentence_counts(a, references, settings)
    counts_b = _sentence_counts(b, references, settings)
    bleu_a = _bleu_of_counts(counts_a.sum(axis=0))
    bleu_b = _bleu_of_counts(counts_b.sum(axis=0))

    # both are resampled by the same draws of sentences
    sums = bootstrap.resampled_sums(np.concatenate([counts_a, counts_b], axis=1))
    sums_a, sums_b = np.hsplit(sums, 2)
    resampled_a = np.array([_bleu_of_counts(row) for row in sums_a])
    resampled_b = np.array([_bleu_of_counts(row) for row in sums_b])
    distances = np.abs(resampled_b - resampled_a)
    # shifted to a mean of 0: the null hypothesis that both are equally good
    num_larger = int((distances - distances.mean() > abs(bleu_b - bleu_a)).sum())

    p_value = 1.0 if bleu_a == bleu_b else (num_larger + 1) / (bootstrap.samples + 1)
    return BleuDifference(bleu_a, bleu_b, bootstrap.interval(resampled_b - resampled_a), p_value)


def _sentence_counts(
    hypotheses: Sequence[str], references: Sequence[str], settings: BleuSettings
) -> np.ndarray:
    """Counts for BLEU, float64 [n, 10]: tokens of both sides, then matching n-grams, then all
    n-grams.
    """
    import sacrebleu.metrics

    # without an effective order each sentence warns
    bleu: Any = sacrebleu.metrics.BLEU(**settings.model_dump(), effective_order=True)
    rows = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        score = bleu.sentence_score(hypothesis, [reference])
        rows.append([score.sys_len, score.ref_len, *score.counts, *score.totals])
    return np.array(rows, dtype=np.float64)


def _bleu_of_counts(counts: np.ndarray) -> float:
    """BLEU of summed counts [10], whose columns are those of `_sentence_counts`."""
    import sacrebleu.metrics

    hypothesis_length = int(counts[0])
    reference_length = int(counts[1])
    matching, total = np.split(counts[2:], 2)
    bleu = sacrebleu.metrics.BLEU
    score = bleu.compute_bleu(
        matching.tolist(),
        total.tolist(),
        hypothesis_length,
        reference_length,
        smooth_method="exp",
    )
    return float(score.score)


def _metrics(settings: BleuSettings) -> tuple[Any, Any]:
    """BLEU and chrF of sacrebleu."""
    import sacrebleu.metrics

    # `force` silences a warning of sacrebleu about texts that look tokenized.
    bleu = sacrebleu.metrics.BLEU(**settings.model_dump(), force=True)
    chrf = sacrebleu.metrics.CHRF(lowercase=settings.lowercase)
    return bleu, chrf


def _require_pairs(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if not references or len(hypotheses) != len(references):
        raise DataError(
            f"BLEU compares {len(hypotheses):,} translations with {len(references):,} references; as many of both "
            "must be there, and at least one."
        )
