"""A model with its memories at selected numbers, ready to answer questions; and the entries behind
each prediction.

Shapes: n positions, k entries for each position.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.encoding.carried_state import CarriedState
from stages.errors import UsageError
from stages.evaluation.figures.places import AllTokens
from stages.evaluation.opening import ReadingSettings, open_range_reader
from stages.evaluation.range_reader import RangeOptions, RangeReader, RangeResult
from stages.evaluation.score_range import score_range
from stages.examples.examples import Corpus
from stages.inspection.request import PASSAGE, Passage, Request, Resolved
from stages.lineage.corpus import token_text
from stages.lineage.rows import DatastoreRows
from stages.models.computing import resolve_device
from stages.models.devices import resolve_precision
from stages.models.language_model import LanguageModel
from stages.retrieval.grids import ReadingGrid
from stages.retrieval.inputs import held_text
from stages.retrieval.rows import MemoryRow
from stages.retrieval.scored_range import ScoredRange
from stages.retrieval.weights.grid import Fixed
from stages.retrieval.weights.policy import Shares as OfReading
from stages.retrieval.weights.policy import WeightPolicy, restored
from stages.text.documents import DocumentNames, names_file, read_runs
from stages.text.excerpt import SplitText, TokenText
from stages.text.tokens import open_split


@dataclass(frozen=True)
class ReadEntries:
    """Entries of one kind that n positions read, in one of the readings.

    `places` int64 [n, k]: rows of the artifact with this `role`, or positions of the text itself if
    `role` is empty; -1 if missing.
    `values` int64 [n, k]: tokens of the entries, -1 if missing.
    `weights` float [n, k]: shares of the reading's memory; over all kinds of entries they sum to 1.
    `carried` float [n, k]: shares of the final distribution, which each entry adds to the
    probability of its token.
    """

    reading: int
    role: str
    places: Tensor
    values: Tensor
    weights: Tensor
    carried: Tensor
    matched: Tensor | None = None
    """Number of tokens that each entry's context shares with the position's, [n, k]; None: keys are
    compared.
    """


class Shares(NamedTuple):
    """Shares of the final distributions, `model` [n] and `memories` [n, readings]; together they
    sum to 1.
    """

    model: Tensor
    memories: Tensor


def _shares(each: Sequence[OfReading]) -> Shares:
    """The shares of the model and of each reading's memory in the final distribution."""
    remaining = torch.ones_like(each[0].factor)
    memories = []
    # Backwards from the last reading: each leaves the rest of its share to the readings before it.
    for reading in reversed(each):
        memories.append((1 - reading.factor) * remaining)
        remaining = remaining * reading.factor
    return Shares(remaining, torch.stack(memories[::-1], -1))


MEASURED_TOKENS = 64
"""Number of tokens whose neighbours measure the spread of scores."""
TEMPERATURE_FRACTION = 0.1
"""Default τ of neighbours, as a fraction of that spread."""
BLOCK_TOKENS = 4096
"""Number of past tokens that are read at a time."""


@dataclass(frozen=True)
class MemoryReader:
    """A model with at most one row of readings, and the policy of their weights; None for the model
    alone.
    """

    read: Mapping[str, Artifact]
    range_reader: RangeReader
    policy: WeightPolicy | None
    memories: list[dict[str, Any]]
    """The readings with their numbers, in the form of a report; `numbers` names the source of the
    numbers.
    """
    text: TokenText

    def read_range(
        self,
        split: str,
        start: int,
        stop: int,
        carried: CarriedState,
        *,
        probed: bool = False,
        distributions: Tensor | None = None,
    ) -> RangeResult:
        """Read tokens [start, stop) of a split, with everything that the weights need; further
        arguments as of `RangeReader.read`.
        """
        where = None if self.policy is None else self.policy.searches_where
        options = RangeOptions(probed, contexts=True, where=where, distributions=distributions)
        return self.range_reader.read(split, start, stop, carried, options)

    def read_entries(self, scored_range: ScoredRange) -> Iterator[tuple[Shares, list[ReadEntries]]]:
        """Read the entries of each token of a range, for a few tokens at a time; the model alone
        has none.
        """
        if self.policy is None:
            return
        positions = scored_range.lm.start + torch.arange(
            len(scored_range.lm), device=scored_range.lm.log_z.device
        )
        for rows, retrieved in self.policy.reading_row.retrieve(scored_range):
            of_readings = self.policy.shares(scored_range, rows, retrieved)
            shares = _shares(of_readings)
            entries = []
            for number, memory in enumerate(retrieved):
                for part, weight in zip(memory.parts, of_readings[number].entries, strict=True):
                    values = part.entries.values.long()
                    role = "" if part.ids is None else part.role
                    if part.ids is None:
                        # Recent entries are positions in the split, the nearest first.
                        back = 1 + torch.arange(values.shape[1], device=values.device)
                        where = torch.where(values >= 0, positions[rows][:, None] - back, -1)
                    else:
                        where = part.ids
                    carried = weight * shares.memories[:, number, None]
                    matched = part.entries.scores if part.are_lengths else None
                    entries.append(
                        ReadEntries(number, role, where, values, weight, carried, matched)
                    )
            yield shares, entries

    def text_of(self, role: str) -> SplitText:
        """The text of a memory, by the role of its artifact: token i is row i."""
        text = held_text(self.read, role)
        if text is None:
            return self.datastore_text(self.read[role])
        arrays = open_split(text.tokens.zarr("tokens.zarr"), text.split)
        file = text.tokens.path / names_file(text.split)
        names = DocumentNames(list(read_runs(file) if file.is_file() else ()))
        return SplitText(text.split, arrays.ids, arrays.doc_offsets, self.text, names)

    def datastore_text(self, datastore: Artifact) -> SplitText:
        """The text of a datastore: token i is row i."""
        rows = DatastoreRows(datastore)
        return SplitText(
            rows.text_name, rows.text.ids, rows.text.doc_offsets, self.text, rows.names
        )

    def of_passage(
        self, passage: Passage, first: int | None = None, origin: int | None = None
    ) -> "MemoryReader":
        """The same reader for a passage instead of splits; it keeps hidden states.

        Args:
            first: the input before the passage; None: the same input as before a split.
            origin: token at which passages of an open book are chosen, and from which its strides
                are counted; None: the first.
        """
        reader = self.range_reader
        if origin is not None:
            split_reader = reader.split_reader.counted_from(origin)
            reader = replace(reader, split_reader=split_reader)
        corpus = Corpus(passage, reader.split_reader.corpus.eos if first is None else first)
        changed = replace(reader.of_corpus(corpus), probes=reader.probes)
        hidden = reader.hidden_memory
        hidden = None if hidden is None else hidden.of_text(changed.split_reader)
        # With counted tokens, hidden states of all of them are kept.
        every = {PASSAGE: AllTokens()}
        changed = replace(changed, hidden_memory=hidden, last_words=every)
        return replace(self, range_reader=changed)

    def carried(self, split: str, start: int) -> CarriedState:
        """The past of a token that readings and states need; reads the tokens of the split before
        it.

        No memory enters hidden states, since the kept states of a position are from before memory
        enters.
        """
        reader = replace(self.range_reader, hidden_memory=None, probes={})
        past = (
            CarriedState()
            if reader.carries_state
            else CarriedState(max(0, start - reader.needs.reach))
        )
        while past.start < start:
            past = reader.past(split, past.start, min(past.start + BLOCK_TOKENS, start), past)
        return past


OF_TUNING = ("tuned", "tune_split", "interior")
"""Facts of a memory that say how its numbers were tuned, as the report of the tuning does."""


def load_reader(
    resolved: Resolved, request: Request, model: LanguageModel | None = None
) -> MemoryReader:
    """Load the memories of a resolved request, and its model unless that is given."""
    device = resolve_device(request.device)
    text = token_text(resolved.read["tokens"])
    settings = ReadingSettings(
        read=resolved.read,
        readings=resolved.readings,
        windows=resolved.windows,
        options=resolved.options,
        split=resolved.split,
        by_document=resolved.by_document,
        exclude=resolved.exclude,
        open_book=resolved.open_book,
        precision=resolve_precision(request.precision, device.type),
    )
    reader, rows = open_range_reader(settings, device, model=model)
    if not rows:
        return MemoryReader(resolved.read, reader, None, [], text)
    row = rows[0]
    policy: WeightPolicy
    if resolved.choices is not None:
        policy = restored(row, resolved.choices)
    else:
        policy = Fixed(row, _grids(row, reader, resolved.read["tokens"]), with_curve=False)
    memories = []
    for described in policy.describe(None):
        settings_alone = {name: value for name, value in described.items() if name not in OF_TUNING}
        memories.append(settings_alone | {"numbers": resolved.numbers})
    return MemoryReader(
        resolved.read, replace(reader, needs=row.needs | policy.needs), policy, memories, text
    )


def _grids(row: MemoryRow, reader: RangeReader, tokens: Artifact) -> list[ReadingGrid]:
    """The numbers of a row; open temperatures are set from the spread of scores."""
    grids = row.grids([1.0] * len(row.sources))
    if all(source.reading.comparison.temperature != "tune" for source in row.sources):
        return grids
    splits = {
        name: split["tokens"] for name, split in tokens.metrics["splits"].items() if name != PASSAGE
    }
    split = next((name for name in ("valid", "test") if splits.get(name)), next(iter(splits)))
    start = splits[split] // 2
    stop = min(start + MEASURED_TOKENS, splits[split])
    alone = replace(reader, hidden_memory=None, probes={})
    sample = [alone.read(split, start, stop, CarriedState(start)).scored_range]
    measured = []
    for source, grid in zip(row.sources, grids, strict=True):
        if source.reading.comparison.temperature == "tune":
            # Rounded to four digits, so that a user can type the number again.
            temperature = float(f"{TEMPERATURE_FRACTION * source.spread(sample):.4g}")
            grid = replace(grid, scales=(1 / temperature,), shown=(temperature,))
        measured.append(grid)
    return measured


def continuation_scores(
    reader: MemoryReader, context: Sequence[int], continuation: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Score a continuation after a context, as one passage that begins with `<eos>`, with all
    memories.

    A model with windows of L inputs reads the last L inputs, perhaps without `<eos>`; a longer
    continuation is read in several windows. A backbone that carries state reads the whole text.

    Returns: log-probabilities of the continuation's tokens, nats, float64 [c]; whether each is the
    argmax, bool [c].
    """
    ids = [*context, *continuation]
    num_kept = len(ids)
    if not reader.range_reader.carries_state:
        num_kept = min(
            num_kept, max(reader.range_reader.split_reader.windows.context, len(continuation))
        )
    first = ids[-num_kept - 1] if num_kept < len(ids) else None
    passage = Passage(ids[-num_kept:])
    start = len(passage) - len(continuation)
    return _scored(reader.of_passage(passage, first, start), start, len(passage))


def text_log_prob(reader: MemoryReader, ids: Sequence[int]) -> float:
    """Summed log-probability of a text after `<eos>`, in nats, read in windows like a split in an
    evaluation.
    """
    log_p, _ = _scored(reader.of_passage(Passage(ids)), 0, len(ids))
    return float(log_p.sum())


def text_distributions(reader: MemoryReader, ids: Sequence[int]) -> np.ndarray:
    """Log-probabilities of every token of the vocabulary before each token of a text, read as by
    `text_log_prob`; float32 [n, V], in nats.

    Raises: UsageError for a text without tokens.
    """
    if not ids:
        raise UsageError("The text has no token that could be read.")
    passage = reader.of_passage(Passage(ids))
    read = passage.range_reader
    parts = []
    carried = CarriedState()
    for start in range(0, len(ids), BLOCK_TOKENS):
        stop = min(start + BLOCK_TOKENS, len(ids))
        every = torch.ones(stop - start, dtype=torch.bool, device=read.split_reader.device)
        result = passage.read_range(PASSAGE, start, stop, carried, distributions=every)
        log_p = result.scored_range.lm.distributions
        assert log_p is not None, "they were asked for"
        if passage.policy is not None:
            log_p = passage.policy.dense(result.scored_range, log_p)
        parts.append(log_p.float().cpu().numpy())
        carried = result.after
    return np.concatenate(parts)


def _scored(reader: MemoryReader, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities of tokens [start, stop) of a passage, and whether each is the argmax."""
    log_p = [np.zeros(0)]
    best = [np.zeros(0, bool)]
    carried = reader.carried(PASSAGE, start) if start else CarriedState()
    policies = [] if reader.policy is None else [reader.policy]
    for begin in range(start, stop, BLOCK_TOKENS):
        result = reader.read_range(PASSAGE, begin, min(begin + BLOCK_TOKENS, stop), carried)
        scores = score_range(reader.range_reader, result, policies)
        log_p.append(scores.final.log_p.double().cpu().numpy())
        best.append(scores.final.columns["correct"].cpu().numpy())
        carried = result.after
    return np.concatenate(log_p), np.concatenate(best)
