"""How artifacts of each kind hold what their inputs hold."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.artifacts.kinds import KINDS
from stages.artifacts.manifest import InputRecord
from stages.forgetting.spans import ROWS, Holding, RowSpan, Way, clipped, in_part, in_segments
from stages.lineage.corpus import TOKENIZER, tokenizer_digest
from stages.lineage.indexes import TEXT, holds_all, is_exact, row_counts
from stages.lineage.sources import is_updated
from stages.packing.segments import SPLIT, is_pairs
from stages.registry import load
from stages.reports.fields import CHANGED, TRANSLATIONS
from stages.text.config import UNTRAINED

IMPORTED = "import-model"
"""Stage whose models read tokens for their vocabulary alone."""
LEARNT_SPLITS = ("train", "valid")
"""Splits that training reads; the weights of the best step are chosen by the second."""
SCORES = "scores.zarr"
PASSAGE = "passage.json"
NETWORK = "weight-network.json"
ANSWERS = "answers.json"
CHART_OF_PASSAGE = "figures/gate-passage"
CHARACTERS = "char"
"""Tokenizer whose types are single characters, which show no words."""


@dataclass
class Ledger:
    """Holdings of the artifacts that were looked at so far, inputs before what is made of
    them.

    `artifacts` and `holdings` by reference; `vocabularies`: result of `learned_vocabularies`.
    """

    artifacts: Mapping[str, Artifact]
    vocabularies: frozenset[str] = frozenset()
    holdings: dict[str, tuple[Holding, ...]] = field(default_factory=dict)

    def input(self, artifact: Artifact, role: str) -> Artifact | None:
        """The input in a role; None: it has none, or it is gone."""
        record = artifact.manifest.inputs.get(role)
        return None if record is None else self.artifacts.get(record.reference)

    def of(self, artifact: Artifact | None) -> tuple[Holding, ...]:
        """The holdings of an artifact."""
        return () if artifact is None else self.holdings.get(artifact.reference, ())

    def spans(self, artifact: Artifact | None, *parts: str) -> tuple[RowSpan, ...]:
        """Spans of an artifact, in these parts; without parts in all."""
        spans: list[RowSpan] = []
        for holding in self.of(artifact):
            if holding.way in MOVED:
                spans += holding.spans
        return in_part(spans, *parts) if parts else tuple(spans)

    def missing(self, artifact: Artifact) -> InputRecord | None:
        """An input that is needed to read an artifact, and is gone or has other bytes."""
        for record in artifact.manifest.inputs.values():
            if record.reference not in artifact.needed:
                continue
            stored = self.artifacts.get(record.reference)
            if stored is None or not stored.matches(record):
                return record
        return None


MOVED = (Way.TEXT, Way.KEYS, Way.CONTEXTS, Way.NEIGHBORS)
"""Ways whose spans are tokens or rows that artifacts below may hold, too."""
Findings = Iterator[tuple[Way, Iterable[RowSpan], Iterable[str]]]
"""Way, spans and files of each holding; without spans and files there is none."""
Rule = Callable[[Artifact, tuple[RowSpan, ...], Ledger], Findings]
"""Function from an artifact, the spans in its own text, and its inputs; `Kind.holds` names it."""


def holdings(artifact: Artifact, stored: Iterable[RowSpan], ledger: Ledger) -> tuple[Holding, ...]:
    """All ways in which an artifact holds documents.

    Args:
        stored: spans in the text that the artifact stores itself.
        ledger: the holdings of its inputs.
    """
    rule_name = KINDS[artifact.kind].holds
    rule: Rule = load(rule_name) if rule_name else held_by_others
    reference = artifact.reference
    result = []
    for way, spans, files in rule(artifact, tuple(stored), ledger):
        holding = Holding(reference, artifact.digest, way, tuple(spans), tuple(files))
        if holding.spans or holding.files:
            result.append(holding)
    return tuple(result)


def learned_vocabularies(
    artifacts: Iterable[Artifact], stored: Mapping[str, Iterable[RowSpan]]
) -> frozenset[str]:
    """Digests of the tokenizers that were learned from documents.

    Args:
        stored: spans in the text that each artifact stores itself, by reference.
    """
    digests = set()
    for tokens in artifacts:
        if tokens.kind != "tokens" or tokens.config.get("tokenizer") in (*UNTRAINED, CHARACTERS):
            continue
        if in_part(stored.get(tokens.reference, ()), "train"):
            digests.add(tokenizer_digest(tokens))
    return frozenset(digests)


def held_by_tokens(tokens: Artifact, stored: tuple[RowSpan, ...], ledger: Ledger) -> Findings:
    """Documents of its own text, and a vocabulary that was learned from one."""
    yield Way.TEXT, stored, ()
    if tokenizer_digest(tokens) in ledger.vocabularies:
        yield Way.VOCABULARY, (), (TOKENIZER,)


def held_by_datastore(datastore: Artifact, stored: tuple[RowSpan, ...], ledger: Ledger) -> Findings:
    """Rows of its own text, or of its corpus as far as they are stored."""
    if is_updated(datastore):
        yield Way.KEYS, stored, ()
        return
    corpus = ledger.input(datastore, "corpus")
    spans = ledger.spans(corpus, str(datastore.config["split"]))
    rows = clipped(spans, 0, int(datastore.metrics["rows"]))
    yield Way.KEYS, [span.moved(ROWS) for span in rows], ()


def held_by_index(index: Artifact, stored: tuple[RowSpan, ...], ledger: Ledger) -> Findings:
    """Rows of its datastore, without those that it leaves out; or contexts of its text."""
    if is_exact(index):
        text = ledger.input(index, TEXT)
        contexts = ledger.spans(text, str(index.config["split"]))
        yield Way.CONTEXTS, [span.moved(ROWS) for span in contexts], ()
        return

    datastore = ledger.input(index, "datastore")
    spans = ledger.spans(datastore, ROWS)
    if spans and not holds_all(index):
        spans = tuple(_stored_rows(spans, row_counts(index)))
    yield Way.KEYS, spans, ()


def _stored_rows(spans: Iterable[RowSpan], counts: np.ndarray | None) -> Iterator[RowSpan]:
    """The spans with a row that an index holds, cut to the first and the last of these rows."""
    assert counts is not None, "some rows are left out"
    for span in spans:
        rows = span.start + np.flatnonzero(counts[span.start : span.stop])
        if len(rows):
            yield span._replace(start=int(rows[0]), stop=int(rows[-1]) + 1)


def held_by_neighbors(neighbors: Artifact, stored: tuple[RowSpan, ...], ledger: Ledger) -> Findings:
    """Tokens whose neighbours it has, and rows that may be neighbours."""
    queries = ledger.spans(ledger.input(neighbors, "queries"), *neighbors.config["queries"])
    rows = ledger.spans(ledger.input(neighbors, "index"), ROWS)
    yield Way.NEIGHBORS, (*queries, *rows), ()


def held_by_batches(batches: Artifact, stored: tuple[RowSpan, ...], ledger: Ledger) -> Findings:
    """Segments with tokens of its text."""
    tokens = ledger.input(batches, "tokens")
    spans = ledger.spans(tokens, SPLIT)
    # Segments of pairs have no one length.
    if tokens is not None and not is_pairs(tokens):
        length = batches.config["segment_length"]
        spans = in_segments(spans, length, int(batches.metrics["segments"]))
    yield Way.SEGMENTS, spans, ()


def held_by_model(model: Artifact, stored: tuple[RowSpan, ...], ledger: Ledger) -> Findings:
    """Documents on which it was trained, or on which another model was that it begins with."""
    if model.manifest.stage == IMPORTED:
        return
    tokens = ledger.input(model, "tokens")
    spans = list(ledger.spans(tokens, *LEARNT_SPLITS))
    other_roles = model.manifest.inputs.keys() - {"tokens"}
    for role in sorted(other_roles):
        for holding in ledger.of(ledger.input(model, role)):
            # Numbers of segments are no rows of tokens.
            if holding.way == Way.SEGMENTS:
                continue
            # Neighbours of the test split are stored too, and no training reads them.
            spans += in_part(holding.spans, *LEARNT_SPLITS, ROWS)
    # Distinct spans, in their order.
    yield Way.LEARNED, dict.fromkeys(spans), ()


def held_by_episodes(episodes: Artifact, stored: tuple[RowSpan, ...], ledger: Ledger) -> Findings:
    """Documents whose keys it has."""
    corpus = ledger.input(episodes, "corpus")
    yield Way.KEYS, ledger.spans(corpus, str(episodes.config["split"])), ()


def held_by_report(report: Artifact, stored: tuple[RowSpan, ...], ledger: Ledger) -> Findings:
    """Tokens of the scored split in its files, and weights that were fitted on the tuning split."""
    tokens = ledger.input(report, "tokens")
    split = str(report.config["split"])
    spans = ledger.spans(tokens, split)
    if spans:
        # Files of all tokens, and those of one passage.
        files = [name for name in (SCORES, TRANSLATIONS, CHANGED) if _has(report, name)]
        if _has(report, PASSAGE):
            passage = report.json(PASSAGE)
            if clipped(spans, int(passage["start"]), int(passage["stop"])):
                files += [PASSAGE, CHART_OF_PASSAGE]
        if files:
            yield Way.QUOTED, spans, files

    tuned = ledger.spans(tokens, str(report.config["tune_split"]))
    if tuned and _has(report, NETWORK):
        yield Way.LEARNED, tuned, (NETWORK,)


def _has(artifact: Artifact, name: str) -> bool:
    """Whether an artifact has a file, or a folder of files, of this name."""
    return any(file == name or file.startswith(f"{name}/") for file in artifact.manifest.files)


def held_by_matrix(matrix: Artifact, stored: tuple[RowSpan, ...], ledger: Ledger) -> Findings:
    """Answers to documents of the scored split."""
    spans = ledger.spans(ledger.input(matrix, "tokens"), str(matrix.config["split"]))
    if spans:
        yield Way.QUOTED, spans, (ANSWERS,)


def held_by_others(artifact: Artifact, stored: tuple[RowSpan, ...], ledger: Ledger) -> Findings:
    """All documents of its inputs, for a kind without a rule."""
    spans: list[RowSpan] = []
    for role in sorted(artifact.manifest.inputs):
        for holding in ledger.of(ledger.input(artifact, role)):
            spans += holding.spans
    yield Way.DERIVED, dict.fromkeys(spans), ()
