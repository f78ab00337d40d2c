"""Artifacts and settings of a question about a model, from the references that a user gives. Does
not import torch.

A text from outside the corpus gets the shape of a split, so that it is read like one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from stages.adaptation.settings import split_dynamic
from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.diagnostics.options import reported_options, resolve_options
from stages.encoding.window_settings import resolve_windows
from stages.errors import ArtifactError, UsageError, content_of
from stages.examples.cutting import WindowSettings
from stages.inspection.settings import Request
from stages.lineage.evaluation import SOURCES as KINDS
from stages.lineage.evaluation import language_model
from stages.memory.readers import READERS
from stages.methods.defaults import default_memory, trained_temperature
from stages.models.config import model_of
from stages.open_book.resolve import find_book, resolve_book
from stages.open_book.settings import OpenBook
from stages.retrieval.book_input import BOOK
from stages.retrieval.grammar import make_reading, parse_readings
from stages.retrieval.inputs import find_artifacts
from stages.retrieval.reading import Comparison, Reading, SourceSettings
from stages.retrieval.registries import CHOICES, SOURCES
from stages.retrieval.resolve import resolve_reading

PASSAGE = "passage"
"""Name of the split that holds a text from outside the corpus."""


class Passage:
    """A growing sequence of tokens, one document, with the arrays of a split of a tokens artifact."""

    def __init__(self, ids: Sequence[int] = ()) -> None:
        self._held = np.array([*ids, 0], np.int64)
        self._length = len(ids)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, name: str) -> np.ndarray:
        """`passage/ids` int64 [T] and `passage/doc_offsets` int64 [2]."""
        return {f"{PASSAGE}/ids": self.ids, f"{PASSAGE}/doc_offsets": np.array([0, self._length])}[
            name
        ]

    @property
    def ids(self) -> np.ndarray:
        """All tokens, int64 [T]."""
        return self._held[: self._length]

    def append(self, id: int) -> None:
        """Add a token."""
        # The array doubles when full, so appending n tokens takes time proportional to n.
        if self._length == len(self._held):
            self._held = np.concatenate((self._held, np.zeros_like(self._held)))
        self._held[self._length] = id
        self._length += 1

    def cut(self, length: int) -> None:
        """Keep the first `length` tokens."""
        self._length = length

    def put_last(self, id: int) -> None:
        """Overwrite the last token."""
        self._held[self._length - 1] = id


def given_readings(specs: tuple[str, ...]) -> tuple[Reading, ...]:
    """The readings of `--memory` options.

    Raises: UsageError if a number would have to be tuned.
    """
    readings = parse_readings(specs)
    for reading in readings:
        if reading.choices:
            raise UsageError(
                f"--memory {reading.spelled}: one number is needed for {', '.join(reading.choices)}, nothing is tuned "
                "here; give numbers, or name with --report an evaluation whose numbers are to be taken."
            )
    return readings


def reported_readings(report: Artifact, model: Artifact) -> tuple[Reading, ...]:
    """The readings of a report's main row, with the numbers that its evaluation selected.

    If weights are learned by context, the readings are as they were before tuning;
    `reported_choices` has the choices. Raises: ArtifactError if another model was evaluated;
    UsageError if the model learned while it was evaluated.
    """
    if not model.matches(report.manifest.inputs["model"]):
        raise ArtifactError(
            f"{report.reference} evaluated {report.input('model').reference}, not {model.reference}; "
            "name a report of that, or give numbers with --memory."
        )
    dynamic, _ = split_dynamic(report.config["memory"] or ())
    if dynamic is not None:
        raise UsageError(
            f"{report.reference} was made while the model learned from the text, which only evaluate "
            "does: name a report without --memory dynamic, or give numbers with --memory."
        )
    if reported_choices(report) is not None:
        return parse_readings(tuple(report.config["memory"]))
    metrics = report.json("metrics.json")
    with content_of(report.file("metrics.json"), UsageError):
        return tuple(map(_reading, metrics["memories"]))


def reported_choices(report: Artifact) -> Mapping[str, Any] | None:
    """The record from which a report's weights by context are restored; None if it has one weight
    for all.
    """
    return report.json(CHOICES) if (report.path / CHOICES).is_file() else None


def _reading(memory: Mapping[str, Any]) -> Reading:
    """A reading of a report, with the numbers that its evaluation selected."""
    sources = [SOURCES.settings(source) for source in memory["sources"]]
    reader = READERS.settings(memory["reader"])
    values: dict[str, Any] = {}
    for part in (Comparison, reader, *sources):
        renamed = part.reported_as if issubclass(part, SourceSettings) else {}
        for key in part.names():
            value = memory.get(renamed.get(key, key))
            if value is not None:
                # A report has one number where a reading has numbers to choose from.
                values[key] = (value,) if key in part.hyperparameters() else value
    return make_reading(memory["sources"], memory["reader"], values)


def default_readings(read: Mapping[str, Artifact]) -> tuple[Reading, ...]:
    """Default readings of these artifacts, with fixed numbers for those that an evaluation would
    tune.

    Temperatures of neighbours stay `tune`.
    """
    readings = []
    for number, reading in enumerate(parse_readings(default_memory(read))):
        tunable = {
            name: hyperparameter.untuned
            for name, hyperparameter in reading.tunable.items()
            if hyperparameter.untuned
        }
        fixed: dict[str, Any] = {
            name: (untuned[-1 if number else 0],) for name, untuned in tunable.items()
        }
        if reading.reader_settings.temperatures:
            fixed["temperature"] = (trained_temperature(read["model"]),)
        readings.append(reading.changed(fixed))
    return tuple(readings)


@dataclass(frozen=True)
class Resolved:
    """Artifacts by role, the split, completed readings, and the windows in which the model reads.

    `numbers`: source of the readings' numbers; `elsewhere`: a report on another datastore.
    """

    read: dict[str, Artifact]
    split: str
    readings: tuple[Reading, ...]
    numbers: Literal["given", "reported", "elsewhere", "default"]
    windows: WindowSettings
    options: Mapping[str, Any]
    """Resolved options of probes."""
    by_document: bool
    choices: Mapping[str, Any] | None
    """Result of `reported_choices`, if the readings come from a report."""
    exclude: str
    """Name of the rule for rows that tokens of the datastore's own text do not find in an index."""
    open_book: OpenBook | None
    """Settings of the book whose passages are read."""


def _require_no_report(reference: str, store: Store) -> None:
    """Refuse a report as the source: it says how a model is read, and is named as --report. Raises:
    UsageError.
    """
    if store.open(reference).kind == "report":
        raise UsageError(
            f"{reference} is a report: name it as --report {reference}, and its model is read as it was."
        )


def find(
    request: Request,
    store: Store,
    split: str | None,
    *,
    writes: bool = False,
    roles: Sequence[str] = (),
) -> Resolved:
    """Find the artifacts and settings of a request.

    Args:
        split: split to read; None: a passage from outside the corpus, whose neighbours must be
        searched for.
        writes: whether text is written; then windows overlap by half unless the request says
            otherwise, and an imported model reads the longest that it can.
        roles: inputs of sources that are needed even if no reading asks for them.
    Raises: UsageError or ArtifactError if references and readings do not fit together.
    """
    _require_no_report(request.source, store)
    source = store.get(request.source, *KINDS)
    model = language_model(source)
    report = None if request.report is None else store.get(request.report, "report")
    readings = None if report is None else reported_readings(report, model)
    if request.memory is not None:
        readings = given_readings(request.memory)
    read = find_artifacts(
        source,
        readings,
        request.references,
        store,
        split=split,
        report=report,
        roles=roles,
    )
    splits = () if split is None else (split,)
    if readings is None:
        readings = default_readings(read)
    complete = tuple(resolve_reading(reading, read, splits) for reading in readings)
    config = {} if report is None else report.config
    windows = _windows(request, config, model, complete, writes)
    book_settings = _add_book(read, request, report, store, windows)
    open_book = resolve_book(book_settings, read, windows, complete)
    return Resolved(
        read,
        split or PASSAGE,
        complete,
        _numbers(request, report, read.get("datastore")),
        windows,
        # A text from outside the corpus has no stored neighbours.
        resolve_options(reported_options(config), read, splits),
        config.get("reset") == "document",
        None if report is None else reported_choices(report),
        config.get("exclude") or "self",
        open_book,
    )


def _add_book(
    read: dict[str, Artifact],
    request: Request,
    report: Artifact | None,
    store: Store,
    windows: WindowSettings,
) -> OpenBook | None:
    """Put the book of a request, or of its report, among the artifacts read; returns its settings.

    Without a report they are the default ones, with passages of half a window at the most.
    """
    reported = None if report is None else report.config.get("open_book")
    settings = None if reported is None else OpenBook.model_validate(reported)
    reference = request.open_book
    if reference is None and settings is not None and report is not None:
        reference = report.input(BOOK.role).reference
    if reference is not None:
        read[BOOK.role] = find_book(reference, read["model"], store)
        half = max(1, windows.context // 2)
        settings = settings or OpenBook(passage=min(OpenBook().passage, half))
    return settings


def _numbers(
    request: Request, report: Artifact | None, datastore: Artifact | None
) -> Literal["given", "reported", "elsewhere", "default"]:
    if report is None:
        return "default" if request.memory is None else "given"
    recorded = report.manifest.inputs.get("datastore")
    same = datastore is None or recorded is None or datastore.matches(recorded)
    return "reported" if same else "elsewhere"


def _windows(
    request: Request,
    reported: Mapping[str, Any],
    model: Artifact,
    readings: tuple[Reading, ...],
    writes: bool,
) -> WindowSettings:
    windows = request.asked_windows
    if reported and request.context is None:
        windows = {
            name: reported.get(name) if value is None else value for name, value in windows.items()
        }
    described = model_of(model)
    segmented = any(reading.reads_windows for reading in readings)
    overlaps = not (described.carries_state or described.reads.source or described.pools)
    if not writes or not overlaps:
        return resolve_windows(model, windows, segmented=segmented)
    longest = None if segmented else described.longest_written
    context = resolve_windows(model, windows | {"context": windows["context"] or longest}).context
    # A window that ends is read anew from half its length back: a token is read twice, whatever
    # its place. A model that reads windows alone reads one for every token in any case.
    overlapping = context // 2 if described.in_pieces and not segmented else context - 1
    stride = request.stride or max(1, context - overlapping)
    return resolve_windows(
        model, windows | {"context": context, "stride": stride}, segmented=segmented
    )
