"""What every reader promises; a test of a reader inherits it."""

from collections.abc import Sequence

import pytest
import torch

from stages.memory.entries import (
    Entries,
    LogSums,
    find_matches,
    log_sums_of_stored_tokens,
    target_log_sums,
)
from stages.memory.readers import READERS
from stages.memory.readers.reader import Reader
from stages.memory.readers.settings import ReaderSettings

VOCABULARY, N, K = 7, 6, 4


class ReaderContract:
    """Subclasses give the name that it is registered under, and weights at the ends of what is
    legal.
    """

    registered_as: str
    ends: Sequence[float]

    @property
    def settings(self) -> type[ReaderSettings]:
        return READERS.settings(self.registered_as)

    @property
    def name(self) -> str:
        (name,) = self.settings.hyperparameters()
        return name

    @property
    def weights(self) -> list[float]:
        (number,) = self.settings.hyperparameters().values()
        return sorted({*self.ends, *number.grid})

    @pytest.fixture
    def reader(self) -> Reader:
        return READERS.load(self.registered_as)()

    @pytest.fixture
    def scores(self) -> torch.Tensor:
        """Of the vocabulary, [n, V]."""
        return 3 * torch.randn(N, VOCABULARY, generator=torch.Generator().manual_seed(0))

    @pytest.fixture
    def entries(self) -> Entries:
        """Of n positions, of which the first reads nothing and the second one entry."""
        random = torch.Generator().manual_seed(1)
        scores, values = (
            torch.randn(N, K, generator=random),
            torch.randint(0, VOCABULARY, (N, K), generator=random),
        )
        scores[0], scores[1, 1:], values[0], values[1, 1:] = -torch.inf, -torch.inf, -1, -1
        return Entries(scores, values)

    def dense(
        self, reader: Reader, scores: torch.Tensor, entries: Entries, weight: float
    ) -> torch.Tensor:
        held = log_sums_of_stored_tokens(entries, 1.0, K)
        return reader.read_dense(scores.log_softmax(-1), scores.logsumexp(-1), held, weight)

    def test_what_is_legal_holds_the_default_grid_and_the_ends_and_rises(self) -> None:
        (number,) = self.settings.hyperparameters().values()
        for weight in self.weights:
            assert self.settings.model_validate({self.name: (weight,)}).weight == (weight,)
        assert list(number.grid) == sorted(set(number.grid)) and len(number.grid) > 2

    def test_the_distribution_sums_to_one(
        self, reader: Reader, scores: torch.Tensor, entries: Entries
    ) -> None:
        for weight in self.weights:
            total = self.dense(reader, scores, entries, weight).exp().sum(-1)
            torch.testing.assert_close(total, torch.ones(N), atol=1e-5, rtol=0)

    def test_a_target_alone_is_what_it_is_among_all(
        self, reader: Reader, scores: torch.Tensor, entries: Entries
    ) -> None:
        for target in range(VOCABULARY):
            matches = find_matches(entries, torch.full((N,), target))
            log_sums = target_log_sums(entries, matches, [1.0], [K]).at(0, 0)
            for weight in self.weights:
                alone = reader.read(
                    scores.log_softmax(-1)[:, target], scores.logsumexp(-1), log_sums, weight
                )
                torch.testing.assert_close(
                    alone, self.dense(reader, scores, entries, weight)[:, target]
                )

    def test_an_empty_memory_leaves_every_token_exactly_as_it_was(
        self, reader: Reader, scores: torch.Tensor, entries: Entries
    ) -> None:
        for weight in self.weights:
            read = self.dense(reader, scores, entries, weight)
            assert torch.equal(read[0], scores.log_softmax(-1)[0])
            assert not torch.isnan(read).any()

    def test_several_weights_are_read_as_one_after_the_other(
        self, reader: Reader, scores: torch.Tensor, entries: Entries
    ) -> None:
        log_p, log_z = scores.log_softmax(-1)[:, 0], scores.logsumexp(-1)
        memory: LogSums = target_log_sums(
            entries, find_matches(entries, torch.zeros(N, dtype=torch.int64)), [1.0], [K]
        ).at(0, 0)
        together = reader.read(log_p, log_z, memory, torch.tensor(self.weights)[:, None])
        for row, weight in zip(together, self.weights, strict=True):
            torch.testing.assert_close(row, reader.read(log_p, log_z, memory, weight))
