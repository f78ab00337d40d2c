"""The source `decoder`: its distribution beside a softmax, and what it cannot be joined with."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
import torch

from stages.encoding.encode import SplitReader
from stages.encoding.side_model import SideModel, SideModels
from stages.errors import UsageError
from stages.models.language_model import LanguageModel, new_model
from stages.retrieval.grammar import parse_reading
from stages.retrieval.sources.decoder import DecoderSource
from stages.retrieval.sources.source import Source
from tests.stages.retrieval.sources.contract import (
    SCALES,
    VOCABULARY,
    WIDTH,
    SmallSplit,
    SourceContract,
    T,
)

READER: Any = SplitReader.__new__(SplitReader)


def student() -> LanguageModel:
    torch.manual_seed(0)
    return new_model(VOCABULARY, 8, backbone="lstm", width=WIDTH, initial_range=2.0).eval()


class TestDecoder(SourceContract):
    spec = "decoder:model=model/0a,lambda=0.3,temperature=2"
    is_never_empty = True
    memories: ClassVar[Mapping[type[Source], Any]] = {
        DecoderSource: SideModels({"0a": SideModel(student(), READER)})
    }

    def test_it_gives_the_softmax_of_the_students_log_probabilities(self) -> None:
        split = SmallSplit.made(0, self.stride)
        log_p = student().log_probs(split.as_scored(0, T)).double()
        found = self.log_sums(split, [0, T]).log_prob
        for number, scale in enumerate(SCALES):
            want = (scale * log_p).log_softmax(-1).gather(1, split.tokens[:, None])[:, 0]
            torch.testing.assert_close(found[number, 0].double(), want, atol=1e-5, rtol=1e-5)

    def test_its_distribution_is_dense(self) -> None:
        split = SmallSplit.made(0, self.stride)
        scored = split.scored_range(self.source, 0, T, None)  # type: ignore[arg-type]
        held = self.source.retrieve(scored)(slice(0, T)).stored_tokens(slice(0, T), 0.5, VOCABULARY)
        dense = torch.zeros(T, VOCABULARY).scatter(1, held.tokens, held.log_sums.log_prob.exp())
        want = (0.5 * student().log_probs(split.as_scored(0, T))).softmax(-1)
        torch.testing.assert_close(dense, want)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("decoder:lambda=0.3", "model is missing"),
        ("decoder+long:model=model/a,size=9,lambda=0.3", "joins no other source"),
        ("decoder:model=model/a,reader=joint", "probabilities, not scores"),
        ("decoder:model=model/a,lambda=length", "only they find matches"),
        ("decoder:model=model/a,lambda=distance", "reads distances"),
        ("long:model=model/a,size=9,lambda=0.3", "belongs to 'decoder'"),
    ],
)
def test_readings_that_do_not_fit_are_refused(spec: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_reading(spec)
