"""Stage evaluate: model, and the memory it reads -> report.

Scores a split with the model alone and with memory added; `stages.evaluation.work` does it.
"""

from collections.abc import Mapping
from typing import Any

from stages.adaptation.resolve import resolve_dynamic
from stages.artifacts.stage import Execution, Inputs, Stage
from stages.artifacts.store import Store
from stages.diagnostics.options import outside_probes, resolve_options
from stages.encoding.window_settings import resolve_windows
from stages.errors import UsageError
from stages.evaluation.config import REPORT, EvaluateConfig
from stages.evaluation.decoding import resolve_decoding
from stages.lineage.corpus import require_tune_split
from stages.lineage.evaluation import SOURCES, datastores_read, require_same_scored
from stages.methods.defaults import default_memory, lacking_memory
from stages.models.devices import device_type, resolve_precision
from stages.open_book.resolve import find_book, resolve_book
from stages.registry import import_outside
from stages.reports.measures import MEASURES
from stages.retrieval.book_input import BOOK
from stages.retrieval.grammar import parse_readings
from stages.retrieval.inputs import find_artifacts, resolve_memory_exclusion
from stages.retrieval.reading import Reading
from stages.retrieval.resolve import reading_warnings, resolve_reading


class Evaluate(Stage[EvaluateConfig]):
    """Scores a split.

    Roles: model and tokens; with a datastore also index, datastore, encoder, and sometimes
    neighbors; the neighbours that enter the model's hidden states (`MODELS_OWN`); the tokens
    of an open book; the inputs that sources declare.
    """

    name = "evaluate"
    kind = "report"
    Config = EvaluateConfig
    schema = REPORT

    def inputs(self, config: EvaluateConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        source = store.get(references["source"], *SOURCES)
        readings = None if config.memory is None else config.readings
        read = find_artifacts(source, readings, references, store, split=config.split)
        if references.get(BOOK.role) is not None:
            read[BOOK.role] = find_book(references[BOOK.role], read["model"], store)
        if references.get("baseline") is not None:
            read["baseline"] = store.get(references["baseline"], "report")
            require_same_scored(read["baseline"], read["tokens"], config.split, config.score)
        return Inputs(read)

    def resolve(
        self, config: EvaluateConfig, inputs: Inputs, execution: Execution
    ) -> EvaluateConfig:
        read = inputs.artifacts
        readings = _readings(config, inputs, execution)
        by_window = any(reading.reads_windows for reading in readings)
        windows = resolve_windows(read["model"], config.asked_windows, segmented=by_window)

        dynamic = config.dynamic
        choices = [name for reading in readings for name in reading.choices]
        choices += [] if dynamic is None else dynamic.choices
        tune_split = config.tune_split if choices else None
        if tune_split is not None:
            require_tune_split(read["tokens"], tune_split)
        splits = (config.split,) if tune_split is None else (config.split, tune_split)

        complete = tuple(resolve_reading(reading, read, splits) for reading in readings)
        if dynamic is not None:
            dynamic = resolve_dynamic(
                dynamic, read, windows, score=config.score, workers=execution.workers
            )
        open_book = resolve_book(config.open_book, read, windows, complete)
        if open_book is not None and dynamic is not None:
            raise UsageError(
                f"--memory {dynamic.spelled}: weights learn from windows without passages: leave "
                "--open-book out, or this reading."
            )
        for warning in reading_warnings(complete, read):
            execution.reporter.warning(warning)
        options = resolve_options(config.probe_options, read, splits)
        exclude = resolve_memory_exclusion(config.exclude, read, splits, datastores_read(read))
        precision = resolve_precision(config.precision, device_type(execution.device))
        return config.model_copy(
            update={
                **windows._asdict(),
                **options,
                "memory": complete if dynamic is None else (dynamic, *complete),
                "tune_split": tune_split,
                "open_book": open_book,
                "exclude": exclude,
                "precision": precision,
                **resolve_decoding(config, complete, read),
            }
        )

    def parts(self, config: EvaluateConfig, inputs: Inputs) -> set[str]:
        probes = outside_probes(inputs.artifacts, config.probe_options, config.split)
        import_outside()
        return {*probes, *MEASURES.outside_names()}


def _readings(config: EvaluateConfig, inputs: Inputs, execution: Execution) -> tuple[Reading, ...]:
    """The readings of the settings, or the default readings of the model's method."""
    if config.memory is not None:
        return config.readings
    lacking = lacking_memory(inputs.artifacts)
    if lacking is not None:
        execution.reporter.warning(lacking)
    return parse_readings(default_memory(inputs.artifacts))
