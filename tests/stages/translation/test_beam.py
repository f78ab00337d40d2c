"""Beam search: against every translation there is, against a loop, and whatever stands beside a
sentence.
"""

import numpy as np
import pytest
import torch
from torch import Tensor

from stages.errors import ArtifactError
from stages.translation.beam import BeamSettings, beam_search, best_tokens
from stages.translation.decoder import Step
from tests.oracles import translation as oracle
from tests.stages.translation.toy import EOS, ToyDecoder, V, padded

SOURCES = [[3, 1, 4], [2], [4, 4, 1, 2, 3, 1], [1, 2]]


@pytest.mark.parametrize("alpha", [0, 0.6, 1])
@pytest.mark.parametrize("seed", range(3))
def test_a_beam_as_wide_as_the_space_finds_the_best_of_all(seed: int, alpha: float) -> None:
    decoder, longest = ToyDecoder(seed, sharpness=0.7), 4
    found = beam_search(decoder, *padded(SOURCES), [longest] * 4, BeamSettings(V**longest, alpha))
    for source, one in zip(SOURCES, found, strict=True):
        target, score = oracle.exhaustive(decoder.next_token(source), V, EOS, longest, alpha)
        assert tuple(one.tokens) == target
        assert one.score == pytest.approx(score, abs=1e-12)


@pytest.mark.parametrize("beam", [1, 2, 4])
@pytest.mark.parametrize("seed", [0, 1, 3])
def test_a_batch_is_searched_as_a_loop_searches_each(seed: int, beam: int) -> None:
    decoder, longest, alpha = ToyDecoder(seed, never=(2,)), [9, 3, 14, 1], (0, 0.6, 1)[seed % 3]
    found = beam_search(decoder, *padded(SOURCES), longest, BeamSettings(beam, alpha))
    lengths = set()
    for source, most, one in zip(SOURCES, longest, found, strict=True):
        target, score = oracle.beam_search(
            decoder.next_token(source), EOS, most, beam, alpha, never=(2,)
        )
        assert (tuple(one.tokens), 2 in one.tokens) == (target, False)
        assert one.score == pytest.approx(score, abs=1e-12)
        length = len(target) + (not one.cut)
        assert one.log_prob == pytest.approx(score * length**alpha, abs=1e-12)
        assert one.cut == (len(target) == most)
        lengths.add(len(target))
    assert len(lengths) > 1  # sentences are done at different steps


def test_one_beam_takes_the_likeliest_token_each_time() -> None:
    decoder = ToyDecoder(3)
    (found,) = beam_search(decoder, *padded(SOURCES[:1]), [12], BeamSettings(1, 0.6))
    next_token, target = decoder.next_token(SOURCES[0]), []
    while len(target) < 12 and (token := int(next_token(tuple(target)).argmax())) != EOS:
        target.append(token)
    assert found.tokens == target


def test_a_translation_depends_neither_on_its_batch_nor_on_padding() -> None:
    settings, longest = BeamSettings(3, 1), [8, 8, 8, 8]
    together = beam_search(ToyDecoder(1), *padded(SOURCES), longest, settings)
    reversed_ = beam_search(
        ToyDecoder(1), *padded(SOURCES[::-1], filler=3, width=11), longest, settings
    )
    alone = [beam_search(ToyDecoder(1), *padded([source]), [8], settings)[0] for source in SOURCES]
    for a, b, c in zip(together, reversed_[::-1], alone, strict=True):
        assert a.tokens == b.tokens == c.tokens
        np.testing.assert_allclose([b.score, c.score], a.score, rtol=1e-12)


def test_memory_changes_every_step_of_all_rows_in_one_call() -> None:
    decoder, calls = ToyDecoder(0), []

    def memory(step: Step, sentences: Tensor) -> Tensor:
        """Sentence i is translated by i tokens of i + 1."""
        calls.append(len(sentences))
        wanted = torch.where(torch.tensor(decoder.steps) > sentences, EOS, sentences + 1)
        return torch.logaddexp(
            step.log_probs + np.log(1e-3), torch.nn.functional.one_hot(wanted, V).log()
        )

    found = beam_search(decoder, *padded(SOURCES), [9] * 4, BeamSettings(2, 0), memory)
    assert [one.tokens for one in found] == [[1 + i] * i for i in range(4)]
    assert len(calls) == decoder.steps and calls[:2] == [
        4,
        6,
    ]  # one sentence ends at once, three have two beams


def test_sentences_that_are_settled_leave_the_batch_early() -> None:
    """A likely short translation is final once what lives is less likely, however long it might
    get.
    """
    decoder = ToyDecoder(0)

    def end_now(step: Step, sentences: Tensor) -> Tensor:
        return (
            torch.tensor([[0.9, *[0.025] * (V - 1)]], dtype=torch.float64)
            .log()
            .expand(len(sentences), V)
        )

    (found,) = beam_search(decoder, *padded(SOURCES[:1]), [50], BeamSettings(4, 0), end_now)
    assert (found.tokens, found.log_prob) == ([], pytest.approx(np.log(0.9)))
    assert decoder.steps == 1


def test_of_equally_likely_tokens_the_smaller_is_taken_first() -> None:
    """Also where more are equal than there are places, which `topk` leaves open."""
    log_probs = torch.zeros(2, 40)
    log_probs[0, 7] = 1
    log_probs[1, 30:] = 2
    found = best_tokens(log_probs, torch.tensor([0.5, -1.0], dtype=torch.float64), 4)
    assert found.token.tolist() == [[7, 0, 1, 2], [30, 31, 32, 33]]
    assert found.log_prob.tolist() == [[1.5, 0.5, 0.5, 0.5], [1, 1, 1, 1]]


def test_probabilities_that_are_no_numbers_are_an_error() -> None:
    nothing = lambda step, sentences: torch.full_like(step.log_probs, torch.nan)  # noqa: E731
    with pytest.raises(ArtifactError):
        beam_search(ToyDecoder(0), *padded(SOURCES), [5] * 4, memory=nothing)
