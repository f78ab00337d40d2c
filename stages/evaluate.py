"""Stage evaluate: model, and the memory it reads -> report.

Scores a split with the model alone and with memory on top. A shard is a range of tokens: of the
tuning split, which leaves sums over the grid and nothing else, then of the split that is reported,
read with the best setting. The neighbours of a token are found, or read, once.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, field_validator

from stages.artifacts.draft import DraftArray
from stages.artifacts.stage import Execution, Inputs, Job, Shard, ShardedStage
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.errors import ArtifactError
from stages.evaluation.corpus import require_split, require_tune_split, resolve_windows
from stages.evaluation.lineage import artifacts_read, language_model, memory_source
from stages.evaluation.readings import DEFAULT, complete_reading
from stages.memory.spec import parse_readings

if TYPE_CHECKING:
    from stages.evaluation.evaluator import Evaluator
    from stages.evaluation.grids import ReadingGrid
    from stages.evaluation.metrics import Counts
    from stages.evaluation.report import Totals
    from stages.evaluation.settling import Settled

CELLS_PER_SHARD = 1 << 23
"""Neighbours that a shard reads: 100 MB of ids and distances."""
MOST_TOKENS_PER_SHARD = 1 << 15
ACCURACY_AT = (1, 8, 64)
"""Numbers of neighbours, beside all that are read, for which retrieval accuracy is told."""


class EvaluateConfig(StageConfig):
    """Settings of evaluate."""

    split: str = "test"
    """Split that is scored."""
    tune_split: str | None = "valid"
    """Split on which numbers are tuned; None once resolved, if none is."""
    memory: tuple[str, ...] | None = None
    """Readings, in order; `none`: the plain model. None: kNN-LM, tuned, where there is a datastore."""
    context: Annotated[int, Field(gt=0)] | None = None
    """Inputs that a window reads; None: the model's segment length."""
    stride: Annotated[int, Field(gt=0)] | None = None
    """Inputs between the starts of two windows; None: the context."""
    mem_length: Annotated[int, Field(gt=0)] | None = None
    """Positions that a backbone carries from segment to segment; None: the model's own."""
    reset: Literal["none", "document"] = "none"
    """Whether windows begin anew at every document."""
    save_token_scores: bool = False
    """Whether `scores.zarr` is written."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Of the forward pass."""

    @field_validator("memory")
    @classmethod
    def _spell(cls, memory: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if memory is None else tuple(r.spelled for r in parse_readings(memory))


@dataclass(frozen=True)
class Part(Shard):
    """A range of tokens, and what is done with them."""

    phase: Literal["sample", "tune", "score"]
    start: int
    stop: int


@dataclass
class Work:
    """What all shards share."""

    evaluator: "Evaluator"
    outside: np.ndarray | None
    scores: dict[str, DraftArray]
    settled: "list[Settled] | None" = None
    """Settings of every row, once the tuning split is done."""


class Evaluate(ShardedStage[EvaluateConfig, Work, Part]):
    """Scores a split; roles: model, tokens; with memory: (neighbors,) index, datastore, encoder."""

    kind = "report"
    Config = EvaluateConfig

    def inputs(self, config: EvaluateConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        source = store.get(references["source"], "model", "index", "neighbors")
        memory = None if config.memory == () else memory_source(source, references, store)
        read = artifacts_read(language_model(source), memory, references, store)
        require_split(read["tokens"], config.split)
        return Inputs(read)

    def resolve(self, config: EvaluateConfig, inputs: Inputs, execution: Execution) -> EvaluateConfig:
        from stages.models.devices import resolve_device, resolve_precision

        context, stride = resolve_windows(inputs["model"], config.context, config.stride, config.mem_length)
        default = DEFAULT if "datastore" in inputs else ()
        readings = parse_readings(default if config.memory is None else config.memory)
        tune_split = config.tune_split if any(r.choices for r in readings) else None
        if tune_split is not None:
            require_tune_split(inputs["tokens"], tune_split)
        splits = tuple(s for s in (config.split, tune_split) if s is not None)
        complete = [complete_reading(r, inputs.artifacts, splits) for r in readings]
        return config.model_copy(
            update={
                "context": context,
                "stride": stride,
                "memory": tuple(reading.spelled for reading in complete),
                "tune_split": tune_split,
                "precision": resolve_precision(config.precision, resolve_device(execution.device)),
            }
        )

    def device(self, execution: Execution) -> str:
        from stages.models.devices import device_name

        return device_name(execution.device)

    def open(self, job: Job[EvaluateConfig]) -> Work:
        from stages.evaluation.opening import open_evaluator
        from stages.evaluation.settling import check_size
        from stages.models.devices import resolve_device, tune_allocator

        config = job.config
        assert config.context is not None and config.stride is not None
        tune_allocator()
        evaluator = open_evaluator(
            job.inputs.artifacts,
            parse_readings(config.memory or ()),
            context=config.context,
            stride=config.stride,
            by_document=config.reset == "document",
            device=resolve_device(job.execution.device),
            precision=config.precision,
        )
        for row in evaluator.rows:
            check_size(row)
        if config.tune_split == config.split:
            job.reporter.warning(f"Memory is tuned on {config.split!r}, the split that is scored.")
        return Work(evaluator, _outside(job), _score_arrays(job))

    def output_bytes(self, job: Job[EvaluateConfig], work: Work) -> int:
        if not job.config.save_token_scores:
            return 0
        return _tokens(job, job.config.split) * 4 * (4 + len(job.config.memory or ()))

    def shards(self, job: Job[EvaluateConfig], work: Work) -> Sequence[Part]:
        config, step = job.config, tokens_per_shard(job.config)
        parts = []
        if config.tune_split is not None:
            total = _tokens(job, config.tune_split)
            parts = [Part("sample", "sample", 0, total), *_ranges("tune", total, step)]
        return [*parts, *_ranges("score", _tokens(job, config.split), step)]

    def run_shard(self, job: Job[EvaluateConfig], work: Work, shard: Part) -> dict[str, Any] | None:
        if shard.phase == "sample":
            return self._sample(job, work, shard)
        if shard.phase == "tune":
            self._tune(job, work, shard)
            return None
        return self._score(job, work, shard)

    def _sample(self, job: Job[EvaluateConfig], work: Work, shard: Part) -> dict[str, Any]:
        """Note how far scores spread, which default temperatures are measured in."""
        assert job.config.tune_split is not None
        return {"spreads": work.evaluator.sample_spreads(job.config.tune_split, shard.stop)}

    def _tune(self, job: Job[EvaluateConfig], work: Work, shard: Part) -> None:
        """Leave the sums over every row's grid, of one range of the tuning split."""
        assert job.config.tune_split is not None
        consulted, _ = work.evaluator.consult(job.config.tune_split, shard.start, shard.stop)
        for number, (row, grids) in enumerate(zip(work.evaluator.rows, _grids(job, work), strict=True)):
            nll = work.evaluator.tune(consulted, row, grids)
            np.save(job.draft.add(_sums_file(shard, number)), nll)

    def _score(self, job: Job[EvaluateConfig], work: Work, shard: Part) -> dict[str, Any]:
        """Score one range with the model alone and with every row, at the settled settings."""
        from stages.evaluation.evaluator import part_record, token_scores

        settings = [settled.settings for settled in _settled(job, work)]
        passage = work.evaluator.score(job.config.split, shard.start, shard.stop, settings)
        if job.config.save_token_scores:
            number = shard.start // tokens_per_shard(job.config)
            for name, block in token_scores(passage).items():
                work.scores[name].write(number, block)
        outside = None if work.outside is None else work.outside[shard.start : shard.stop]
        record = part_record(passage, outside, _accuracy_at(work))
        if not np.isfinite(record["nll"]).all():
            raise ArtifactError(
                f"{job.inputs['model'].reference} gives probabilities that are not numbers, or zero, "
                f"in tokens {shard.start} to {shard.stop} of {job.config.split}: train it again."
            )
        return record

    def finish(self, job: Job[EvaluateConfig], work: Work) -> dict[str, Any]:
        from stages.evaluation import report
        from stages.evaluation.metrics import Counts

        shards = [s for s in self.shards(job, work) if s.phase == "score"]
        totals = report.Totals.of([job.draft.record(s.key) for s in shards])
        counts = Counts.of(job.inputs["tokens"].metrics["splits"][job.config.split])
        names = [report.PLAIN, *(row.name for row in work.evaluator.rows)]
        rows = report.table(names, _memories(job, work), totals, counts)
        main = rows[1] if work.evaluator.rows else rows[0]
        made = {
            "split": job.config.split,
            "tokens": counts.tokens,
            **{name: value for name, value in main.items() if name != "row"},
            "method": job.inputs["model"].config["method"],
            "rows": rows,
            "outside_repeated_paragraphs": report.outside_repeated_paragraphs(names, totals, counts),
            "retrieval_accuracy": report.retrieval_accuracy(totals, counts),
            **_memory_report(job, work, totals, counts),
            "read": {role: artifact.reference for role, artifact in job.inputs.artifacts.items()},
        }
        path = job.draft.add("metrics.json")
        path.write_text(json.dumps(made, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        return {name: made[name] for name in report.HEADLINE}


def _memories(job: Job[EvaluateConfig], work: Work) -> list[list[dict[str, Any]]]:
    """The readings of every row, the plain model first, with their hyperparameters."""
    from stages.evaluation.settling import describe_row

    pairs = zip(work.evaluator.rows, _settled(job, work), strict=True)
    return [[], *(describe_row(row, settled, job.config.tune_split) for row, settled in pairs)]


def _memory_report(job: Job[EvaluateConfig], work: Work, totals: "Totals", counts: "Counts") -> dict[str, Any]:
    """What the report says of the readings of the first memory row."""
    from stages.evaluation import report, settling

    if not work.evaluator.rows:
        return {"perplexity_by_k": [], "grid": None}
    row, settled, tune_split = work.evaluator.rows[0], _settled(job, work)[0], job.config.tune_split
    for name in settling.at_edge(row, settled):
        job.reporter.warning(f"The best {name} lies at the edge of its grid; give a list that goes on.")
    by_cutoff = settling.describe_by_cutoff(row, settled)
    tuning_tokens = _tokens(job, tune_split) if tune_split is not None else 0
    return {
        "perplexity_by_k": report.perplexity_by_k(by_cutoff, totals, counts),
        "grid": settling.describe_grid(settled, tuning_tokens),
    }


def tokens_per_shard(config: EvaluateConfig) -> int:
    """Tokens of one shard of a resolved configuration; whole strides, at least one."""
    stride = config.stride or 1
    numbers = [r.k for r in parse_readings(config.memory or ())]
    most = max((max(k) for k in numbers if isinstance(k, tuple)), default=1)
    return max(1, min(MOST_TOKENS_PER_SHARD, CELLS_PER_SHARD // most) // stride) * stride


def _ranges(phase: Literal["tune", "score"], total: int, step: int) -> list[Part]:
    starts = range(0, total, step)
    return [Part(f"{phase}-{n:06d}", phase, s, min(s + step, total)) for n, s in enumerate(starts)]


def _tokens(job: Job[EvaluateConfig], split: str) -> int:
    return int(job.inputs["tokens"].metrics["splits"][split]["tokens"])


def _outside(job: Job[EvaluateConfig]) -> np.ndarray | None:
    """Which tokens of the scored split lie in no paragraph of the model's training text, bool [T]."""
    from stages.evaluation.paragraphs import repeated_tokens

    known = job.inputs["model"].input("tokens")
    if "train" not in known.metrics["splits"]:
        return None
    return ~repeated_tokens(job.inputs["tokens"], job.config.split, known, "train")


def _score_arrays(job: Job[EvaluateConfig]) -> dict[str, DraftArray]:
    config = job.config
    if not config.save_token_scores:
        return {}
    tokens = _tokens(job, config.split)
    dtypes = {"target": np.int32, "logp": np.float32, "logp_lm": np.float32, "log_z": np.float32}
    step = tokens_per_shard(config)
    arrays = {name: job.draft.array(f"scores.zarr/{name}", (tokens,), dtype, step) for name, dtype in dtypes.items()}
    if config.memory:
        shape = (tokens, len(config.memory))
        arrays["logp_memory"] = job.draft.array("scores.zarr/logp_memory", shape, np.float32, step)
    return arrays


def _sums_file(shard: Part, row: int) -> str:
    return f"scratch/{shard.key}-{row}.npy"


def _grids(job: Job[EvaluateConfig], work: Work) -> "list[list[ReadingGrid]]":
    """What the readings of each row may be set to."""
    rows = work.evaluator.rows
    if job.config.tune_split is None:
        return [row.grids([1.0] * len(row.plans)) for row in rows]
    spreads = job.draft.record("sample")["spreads"]
    return [row.grids(spread) for row, spread in zip(rows, spreads, strict=True)]


def _settled(job: Job[EvaluateConfig], work: Work) -> "list[Settled]":
    """The settings of every row, from the sums that the tuning split left."""
    from stages.evaluation.settling import settle

    if work.settled is None:
        tuning = [shard for shard in Evaluate().shards(job, work) if shard.phase == "tune"]
        files = [[job.draft.path / _sums_file(s, n) for s in tuning] for n in range(len(work.evaluator.rows))]
        pairs = zip(work.evaluator.rows, _grids(job, work), files, strict=True)
        work.settled = [settle(row, grids, [np.load(f) for f in sums]) for row, grids, sums in pairs]
    return work.settled


def _accuracy_at(work: Work) -> list[int]:
    if not work.evaluator.rows:
        return []
    k = work.evaluator.rows[0].plans[0].k
    return sorted({n for n in ACCURACY_AT if n < k} | {k})
