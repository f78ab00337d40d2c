"""What every source promises; a test of a source inherits it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from stages.encoding.carried_state import CarriedState
from stages.encoding.encode import Places
from stages.encoding.scoring import LMScores
from stages.examples.windows import windows
from stages.memory.entries import LogSums
from stages.memory.readers import READERS
from stages.memory.readers.reader import Reader
from stages.retrieval.grammar import parse_reading
from stages.retrieval.neighbors import Datastore, FoundNeighbors
from stages.retrieval.registries import SOURCES
from stages.retrieval.rows import MemoryRow
from stages.retrieval.scored_range import ScoredRange
from stages.retrieval.sources.external import ExternalSource
from stages.retrieval.sources.source import Source, SourceInputs, open_source
from stages.search.keys import StoredKeys
from tests.builders.limits import limit

T, VOCABULARY, WIDTH, CONTEXT, ROWS = 37, 4, 3, 8, 50
DOCUMENTS = np.array([0, 11, 12, 30])
SCALES = [0.0, 0.5, 2.0]


@dataclass(frozen=True)
class SmallSplit:
    """T tokens; the key of a position depends on its window too. `neighbors`: rows a token finds,
    none of the first.
    """

    tokens: torch.Tensor
    keys: torch.Tensor
    stride: int

    @classmethod
    def made(cls, seed: int, stride: int) -> "SmallSplit":
        random = torch.Generator().manual_seed(seed)
        tokens = torch.randint(0, VOCABULARY, (T,), generator=random)
        return cls(tokens, torch.randn(T, WIDTH, generator=random), stride)

    def with_other_future(self, position: int) -> "SmallSplit":
        """The same split up to and with the key of a position; what follows is another."""
        other = SmallSplit.made(99, self.stride)
        tokens = torch.cat((self.tokens[:position], (self.tokens[position:] + 1) % VOCABULARY))
        return replace(
            self,
            tokens=tokens,
            keys=torch.cat((self.keys[: position + 1], other.keys[position + 1 :])),
        )

    def key(self, position: int, window_start: int) -> torch.Tensor:
        return self.keys[position] * (1 + 0.1 * window_start)

    def as_scored(self, start: int, stop: int) -> torch.Tensor:
        """Keys of tokens [start, stop), each of the window that scores it."""
        scoring = windows(T, CONTEXT, self.stride, start, stop)
        made = [
            self.key(p, w.start)
            for w in scoring
            for p in range(max(start, w.scored_from), min(stop, w.stop))
        ]
        return torch.stack(made) if made else self.keys[:0]

    def scored_range(
        self, source: Source, start: int, stop: int, found: FoundNeighbors
    ) -> ScoredRange:
        """A range as an evaluator makes it, with nothing that the source does not say it needs."""
        needs, scoring = source.needs, windows(T, CONTEXT, self.stride, start, stop)
        before = {
            name: [
                torch.stack(
                    [self.key(p, w.start) for p in range(w.start, max(start, w.scored_from))]
                    or [self.keys[0]]
                )[: max(start, w.scored_from) - w.start]
                for w in scoring
            ]
            for name in needs.window_keys
        }
        own = self.as_scored(start, stop)
        zeros = torch.zeros(stop - start)
        lm = LMScores(
            start,
            self.tokens[start:stop],
            zeros - 1,
            zeros,
            dict.fromkeys(needs.keys, own),
            before,
            None,
            None,
        )
        first = max(0, start - needs.reach)
        past = CarriedState(start)
        if needs.reach and start:
            kept = self.as_scored(first, start)
            past = CarriedState(
                start, keys=dict.fromkeys(needs.keys, kept), tokens=self.tokens[first:start]
            )
        document = DOCUMENTS[np.searchsorted(DOCUMENTS, np.arange(start, stop), side="right") - 1]
        neighbors = None
        if needs.neighbors:
            rows = slice(start, stop), slice(0, needs.neighbors)
            neighbors = FoundNeighbors(found.ids[rows], found.distances[rows])
        queries = self.keys[start:stop].numpy() if needs.exact else None
        sides = dict.fromkeys(needs.models, own)
        places = Places(document, scoring)
        return ScoredRange(lm, past, places, None, neighbors, queries, side_hidden=sides)


def small_datastore(lossless: bool) -> Datastore:
    random = np.random.default_rng(3)
    keys = random.standard_normal((ROWS, WIDTH)).astype(np.float32)
    values = np.append(random.integers(0, VOCABULARY, ROWS), -1).astype(np.int32)
    return Datastore(StoredKeys(keys, rows_per_shard=16), torch.from_numpy(values), "l2", lossless)


def small_found(most: int) -> FoundNeighbors:
    """Neighbours of T tokens, best first; of the first token none, of every third fewer."""
    random = np.random.default_rng(4)
    ids = np.stack([random.permutation(ROWS)[:most] for _ in range(T)]).astype(np.int64)
    distances = np.sort(random.random((T, most)).astype(np.float32), axis=1)
    for token in range(0, T, 3):
        kept = most // 2 if token else 0
        ids[token, kept:], distances[token, kept:] = -1, np.inf
    return FoundNeighbors(ids, distances)


class SourceContract:
    """Subclasses say which completed reading is opened; its first position has nothing to read,
    unless it is never empty.
    """

    spec: str
    is_never_empty = False
    stride = CONTEXT
    lossless = True
    memories: ClassVar[Mapping[type[Source], Any]] = {}
    """What the source opens, by its class."""

    @property
    def source(self) -> Source:
        memories = {ExternalSource: small_datastore(self.lossless), **self.memories}
        inputs = SourceInputs(CONTEXT, self.stride < CONTEXT, "cpu", memories, VOCABULARY)
        return open_source(parse_reading(self.spec), inputs)

    def log_sums(
        self, split: SmallSplit, bounds: Sequence[int], source: Source | None = None
    ) -> LogSums:
        """LogSums [S, C, T] of a split that is read in ranges between bounds."""
        source = source or self.source
        found, parts = small_found(10), []
        for start, stop in pairwise(bounds):
            scored_range = split.scored_range(source, start, stop, found)
            for _, (one,) in MemoryRow((source,)).retrieve(scored_range):
                parts.append(one.log_sums(SCALES, source.cutoffs))
        return LogSums(
            *(
                torch.cat([getattr(p, n) for p in parts], -1)
                for n in ("target", "total", "max_score")
            )
        )

    @pytest.fixture(autouse=True)
    def few_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        limit(monkeypatch, min_chunk_positions=3, chunk_entries={"cpu": 40})

    @pytest.mark.parametrize("cuts", [range(1, T), [CONTEXT, 2 * CONTEXT], [1, 5, 6, 19, 36]])
    def test_cutting_a_range_changes_nothing(self, cuts: Sequence[int]) -> None:
        split = SmallSplit.made(0, self.stride)
        whole, cut = self.log_sums(split, [0, T]), self.log_sums(split, [0, *cuts, T])
        for name in ("target", "total"):
            sums = [getattr(one, name) + one.max_score for one in (whole, cut)]
            torch.testing.assert_close(*sums, atol=1e-4, rtol=1e-4)

    # Four conditions on a fair score

    @pytest.mark.parametrize("position", [0, 1, 7, 8, 12, 36])
    def test_a_probability_depends_on_the_past_alone(self, position: int) -> None:
        """Another future leaves earlier scores as they were, and reads the same.

        Equal up to the last bit: vectorized logarithms round a number by what its neighbours are.
        """
        split = SmallSplit.made(0, self.stride)
        read, other = (
            self.log_sums(one, [0, T]) for one in (split, split.with_other_future(position))
        )
        for name, stop in (("target", position), ("total", position + 1)):
            sums = [(getattr(one, name) + one.max_score)[..., :stop] for one in (read, other)]
            torch.testing.assert_close(*sums, atol=1e-6, rtol=1e-6)

    def test_probabilities_of_all_tokens_add_up_to_one(self) -> None:
        split = SmallSplit.made(0, self.stride)
        for reader in READERS.names():
            total = self.distributions(split, READERS.load(reader)()).exp().sum(-1)
            torch.testing.assert_close(total, torch.ones(T), atol=1e-5, rtol=0)

    @pytest.mark.parametrize("position", [1, 8, 36])
    def test_a_token_is_scored_before_it_is_read(self, position: int) -> None:
        """The distribution at a position is the same whatever its token is."""
        split, reader = SmallSplit.made(0, self.stride), READERS.load("interpolate")()
        read, other = (
            self.distributions(one, reader) for one in (split, split.with_other_future(position))
        )
        torch.testing.assert_close(read[position], other[position], atol=1e-6, rtol=1e-6)

    def test_every_position_is_read_once_and_in_order(self) -> None:
        source = self.source
        scored_range = SmallSplit.made(0, self.stride).scored_range(source, 0, T, small_found(10))
        read = [part for part, _ in MemoryRow((source,)).retrieve(scored_range)]
        assert [place for part in read for place in range(T)[part]] == list(range(T))

    def test_entries_of_the_split_itself_say_where_their_tokens_stand(self) -> None:
        """Without ids they are the latest tokens, nearest first; `inspect` quotes them there."""
        source, split, start = self.source, SmallSplit.made(0, self.stride), 5
        scored_range = split.scored_range(source, start, T, small_found(10))
        for rows, (retrieved,) in MemoryRow((source,)).retrieve(scored_range):
            positions = torch.arange(start, T)[rows, None]
            for part in retrieved.parts:
                values, places = part.entries.values.long(), part.ids
                if places is None:
                    places = positions - 1 - torch.arange(values.shape[1])
                elif part.role:  # rows of an artifact
                    continue
                stands_in_split = (values >= 0) & (places >= 0)
                tokens = split.tokens[places[stands_in_split]]
                assert torch.equal(tokens, values[stands_in_split])
                assert (places < positions)[stands_in_split].all()

    def distributions(self, split: SmallSplit, reader: Reader) -> torch.Tensor:
        """Log-probabilities of all tokens with half of the memory, on top of even ones, [T, V]."""
        source, parts = self.source, []
        scored_range = split.scored_range(source, 0, T, small_found(10))
        for rows, (one,) in MemoryRow((source,)).retrieve(scored_range):
            count = len(range(T)[rows])
            stored = one.stored_tokens(slice(0, count), SCALES[1], source.cutoffs[-1])
            even = torch.full((count, VOCABULARY), 1 / VOCABULARY).log()
            parts.append(reader.read_dense(even, torch.zeros(count), stored, 0.5))
        return torch.cat(parts)

    def test_where_there_is_nothing_to_read_every_reader_leaves_the_model_alone(self) -> None:
        memory = self.log_sums(SmallSplit.made(0, self.stride), [0, T]).at(1, 0)
        if self.is_never_empty:
            assert not memory.empty.any()
            return
        assert memory.empty[0] and not memory.empty.all()
        log_p = torch.linspace(-9, -1, T)
        for reader in READERS.names():
            read = READERS.load(reader)().read(log_p, torch.zeros(T), memory, 0.5)
            assert read[0] == log_p[0]

    def test_what_is_narrowed_reads_the_same_up_to_its_cutoff(self) -> None:
        split, source = SmallSplit.made(0, self.stride), self.source
        wide = self.log_sums(split, [0, T])
        for number, cutoff in enumerate(source.cutoffs):
            narrow = source.narrowed(cutoff)
            at = narrow.cutoffs.index(cutoff)
            one = self.log_sums(split, [0, T], narrow)
            torch.testing.assert_close(
                (one.total + one.max_score)[:, at],
                (wide.total + wide.max_score)[:, number],
                atol=1e-4,
                rtol=1e-4,
            )

    def test_it_says_what_tables_need(self) -> None:
        source, sample = self.source, SmallSplit.made(0, self.stride)
        spread = source.spread([sample.scored_range(source, 0, T, small_found(10))])
        assert spread > 0 and len(source.default_scales(spread)) > 2
        settings = [SOURCES.settings(name) for name in source.reading.sources]
        assert any(source.about.amount in (*one.names(), *one.reported) for one in settings)
        assert list(source.cutoffs) == sorted(set(source.cutoffs)) and source.positions_at_once > 0
        assert set(source.grid(spread, alone=True).cutoffs) >= set(source.cutoffs)
