"""Translation of lines by a model and its memories, with the pairs that support each token."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from stages.artifacts.store import Store
from stages.errors import DataError, UsageError
from stages.inspection.reading import MemoryReader, load_reader
from stages.inspection.request import Request, find
from stages.lineage.corpus import require_sources
from stages.models.config import model_of
from stages.models.devices import resolve_precision
from stages.retrieval.inputs import inputs_in
from stages.translation.beam import Hypothesis
from stages.translation.pairs import PairTexts, pair_texts
from stages.translation.settings import TranslationRequest
from stages.translation.step_memory import StepMemory
from stages.translation.translator import Translator, open_translator

MAX_SOURCE = 4096
"""Tokens of a line. Attention over a source needs memory by the square of its length."""
NO_IDS = np.empty(0, np.int64)


class TranslatedToken(NamedTuple):
    """A token of a translation, its probability with and without memory, and the pair that supports
    it most.
    """

    text: str
    probability: float
    model: float
    pair: dict[str, Any] | None


class Translated(NamedTuple):
    """A line and its translation; `tokens` only if they were requested."""

    source: str
    text: str
    score: float
    log_prob: float
    cut: bool
    tokens: list[TranslatedToken] | None


@dataclass(frozen=True)
class LineTranslator:
    """Translator of lines of text, with a model and its memories."""

    reader: MemoryReader
    translator: Translator

    def translate(self, lines: Iterable[str], attribute: bool) -> Iterator[Translated]:
        """Translate lines in batches; yields results in their order. A blank line stays blank.

        Raises: DataError for a line of more than MAX_SOURCE tokens, once those before it are out.
        """
        for sources in self._batches(lines):
            hypotheses = iter(self.translator.translate([ids for _, ids in sources if ids.size]))
            for line, ids in sources:
                if not ids.size:
                    yield Translated(line, "", 0.0, 0.0, False, [] if attribute else None)
                    continue
                best = next(hypotheses)
                text = self.translator.text_of(best.tokens)
                tokens = self._tokens(ids, best) if attribute else None
                yield Translated(line, text, best.score, best.log_prob, best.cut, tokens)

    def _batches(self, lines: Iterable[str]) -> Iterator[list[tuple[str, np.ndarray]]]:
        """Lines with their ids, in batches; a blank line has no ids."""
        batch: list[tuple[str, np.ndarray]] = []
        for place, line in enumerate(lines, 1):
            ids = self._ids(line) if line.strip() else NO_IDS
            if len(ids) > MAX_SOURCE:
                if batch:
                    yield batch
                raise DataError(
                    f"Line {place:,} has {len(ids):,} tokens, and at most {MAX_SOURCE:,} are "
                    "translated: cut it into sentences, one a line."
                )
            batch.append((line, ids))
            if len(batch) == self.translator.batch:
                yield batch
                batch = []
        if batch:
            yield batch

    def _ids(self, line: str) -> np.ndarray:
        return np.array([*self.reader.text.ids(line), self.reader.text.eos])

    def _tokens(self, source: np.ndarray, hypothesis: Hypothesis) -> list[TranslatedToken]:
        evidence = self.translator.evidence(source, hypothesis)
        labels = [self.reader.text.label(token) for token in self.translator.written(hypothesis)]
        rows = evidence.row.tolist()
        columns = zip(
            labels,
            evidence.log_p.exp().tolist(),
            evidence.log_p_model.exp().tolist(),
            rows,
            strict=True,
        )
        pairs = self._pairs
        return [
            TranslatedToken(word, p, share, None if row < 0 else pairs.of_row(row))
            for word, p, share, row in columns
        ]

    @cached_property
    def _pairs(self) -> PairTexts:
        return pair_texts(self.reader.read, self.reader.text)


def open_line_translator(
    request: Request, store: Store, settings: TranslationRequest
) -> LineTranslator:
    """Open the model and memories that a request names. Raises: UsageError, ArtifactError if they
    do not translate.
    """
    resolved = find(request, store, None)
    reads_tokens = any(memory.from_tokens for memory, _ in inputs_in(resolved.read))
    if request.tokens is not None and not reads_tokens:
        raise UsageError(
            "--tokens names the pairs of similar-pairs, which are not read: --memory similar-pairs:…"
        )
    require_sources(model_of(resolved.read["model"]), resolved.read["tokens"])
    reader = load_reader(resolved, request)
    model = reader.range_reader.model
    device = reader.range_reader.split_reader.device
    precision = resolve_precision(request.precision, device.type)
    external = reader.range_reader.external
    memory = None
    key = None
    if reader.policy is None:
        if settings.attribute:
            raise UsageError(
                "--attribute shows the pairs of a datastore, and none is read: name an index."
            )
    else:
        search = None if external is None else external.retrieval.steps()
        if external is None or search is None:
            raise UsageError(
                "Each step searches an index, or similar pairs, and reads their neighbours alone: "
                "--memory external:…, similar-pairs:…, or none."
            )
        memory = StepMemory(reader.policy, search, getattr(torch, external.encoder.dtype))
        key = external.encoder.key
    return LineTranslator(
        reader,
        open_translator(model, resolved.read["tokens"], settings, device, precision, memory, key),
    )
