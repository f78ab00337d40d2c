"""BLEU and chrF against sacrebleu itself, and the bootstrap against its own."""

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from stages.errors import DataError, UsageError
from stages.evaluation.config import BleuSettings
from stages.evaluation.figures.bleu import (
    bleu_difference,
    corpus_scores,
    require_sacrebleu,
    sentence_chrf,
)
from stages.evaluation.figures.intervals import Bootstrap

WORDS = "ein Mann geht mit seinem Hund durch den Park und Die Frau sieht ihn .".split(" ")  # noqa: SIM905


def sentences(seed: int, noise: float, count: int = 60) -> list[str]:
    """The same random sentences for every seed, some of their words replaced."""
    text, random = np.random.default_rng(0), np.random.default_rng(seed)
    made = []
    for _ in range(count):
        words = text.choice(WORDS, text.integers(3, 14))
        made.append(
            " ".join(
                np.where(random.random(len(words)) < noise, random.choice(WORDS, len(words)), words)
            )
        )
    return made


REFERENCES, A, B = sentences(1, 0), sentences(2, 0.4), sentences(3, 0.25)


@pytest.mark.parametrize(
    "settings", [BleuSettings(), BleuSettings(lowercase=True, tokenize="char")]
)
def test_a_split_is_scored_as_sacrebleu_scores_it(settings: BleuSettings) -> None:
    found, bleu = corpus_scores(A, REFERENCES, settings), BLEU(**settings.model_dump())
    chrf = CHRF(lowercase=settings.lowercase)
    own = bleu.corpus_score(A, [REFERENCES])
    assert (found.bleu, found.brevity_penalty, found.length_ratio) == (own.score, own.bp, own.ratio)
    assert found.chrf == chrf.corpus_score(A, [REFERENCES]).score
    assert (found.signature, found.chrf_signature) == (
        str(bleu.get_signature()),
        str(chrf.get_signature()),
    )


def test_the_paired_bootstrap_is_sacrebleus() -> None:
    """Same draws, same p; the interval holds the difference, and not 0 where p is small."""
    systems = [("baseline", A), ("other", B)]
    _, scores = PairedTest(systems, {"BLEU": BLEU()}, [REFERENCES], "bs", n_samples=300)()
    found = bleu_difference(A, B, REFERENCES, BleuSettings(), Bootstrap(300, seed=12345))
    assert found.p_value == pytest.approx(scores["BLEU"][1].p_value, abs=1e-12)
    assert (found.a, found.b) == pytest.approx([one.score for one in scores["BLEU"]])
    assert found.p_value < 0.05 and found.interval is not None
    assert 0 < found.interval[0] < found.difference < found.interval[1]
    back = bleu_difference(B, A, REFERENCES, BleuSettings(), Bootstrap(300, seed=12345))
    assert back.interval == pytest.approx([-edge for edge in found.interval[::-1]])


def test_a_translation_does_not_differ_from_itself() -> None:
    found = bleu_difference(A, A, REFERENCES, BleuSettings(), Bootstrap(50))
    assert (found.difference, found.interval, found.p_value) == (0, (0, 0), 1)


def test_chrf_of_sentences_is_100_for_a_reference() -> None:
    assert sentence_chrf([REFERENCES[0], ""], [REFERENCES[0], REFERENCES[1]], BleuSettings()) == [
        100,
        0,
    ]


@pytest.mark.parametrize(
    ("hypotheses", "references"), [([], []), (["a"], ["a", "b"]), (["a", "b"], ["a"])]
)
def test_other_numbers_of_translations_and_references_are_an_error(
    hypotheses: list[str], references: list[str]
) -> None:
    """sacrebleu itself scores those that have a partner, or raises IndexError."""
    with pytest.raises(DataError):
        corpus_scores(hypotheses, references, BleuSettings())


def test_an_unknown_tokenizer_is_refused_before_work() -> None:
    require_sacrebleu(BleuSettings(tokenize="intl"))
    with pytest.raises(UsageError, match="13a"):
        require_sacrebleu(BleuSettings(tokenize="nonsense"))
