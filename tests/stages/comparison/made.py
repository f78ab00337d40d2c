"""Reports whose token scores are given, of text that is written out in a test."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.artifact import Artifact
from stages.artifacts.declaration import StageEntry
from stages.artifacts.kinds import STAGES
from stages.artifacts.make import make
from stages.artifacts.stage import Execution, Inputs, Job, SerialStage
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.evaluation.figures.places import scored_places
from stages.tokenize import Tokenize, TokenizeConfig


class GivenModel(SerialStage[StageConfig]):
    """A model that was trained on nothing."""

    name = "untrained-model"
    kind = "model"
    Config = StageConfig

    def inputs(self, config: StageConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        return Inputs({"tokens": store.get(references["tokens"], "tokens")})

    def run(self, job: Job[StageConfig]) -> dict[str, Any]:
        job.draft.add("config.json").write_text("{}")
        return {}


class ReportConfig(StageConfig):
    nll: tuple[float, ...] = ()
    nll_lm: tuple[float, ...] | None = None
    gate: tuple[float, ...] | None = None
    split: str = "test"
    score: str = "all"
    reset: str = "none"
    memory: tuple[str, ...] = ()
    context: int = 8
    stride: int = 8
    save_token_scores: bool = True


class GivenReport(SerialStage[ReportConfig]):
    """The scores that its settings give it; by `nll_lm` of a plain model under a cache."""

    name = "given-report"
    kind = "report"
    Config = ReportConfig

    def inputs(self, config: ReportConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        return Inputs({role: store.get(references[role]) for role in ("model", "tokens")})

    def run(self, job: Job[ReportConfig]) -> dict[str, Any]:
        config = job.config
        job.draft.add("metrics.json").write_text(json.dumps({}))
        if config.save_token_scores:
            for name, values in self._scores(job).items():
                half = max(1, len(values) // 2)
                job.draft.write_whole(
                    ArrayLayout(f"scores.zarr/{name}", values.shape, values.dtype, half), values
                )
        figures = dict.fromkeys(("nll", "perplexity", "bits_per_character", "word_perplexity"))
        names = ["plain"] if config.nll_lm is None else ["plain", "neural-cache"]
        stated = {"method": "lm", "split": config.split, "score": config.score, "memories": []}
        return {"rows": [{"row": name, **figures} for name in names], **stated}

    def _scores(self, job: Job[ReportConfig]) -> dict[str, np.ndarray]:
        config, tokens = job.config, job.inputs["tokens"]
        places = scored_places(tokens, config.split, config.score)
        ids = np.asarray(places.split.ids[:])
        alone = config.nll if config.nll_lm is None else config.nll_lm
        arrays = {
            "target": ids[places.read(0, len(places))].astype(np.int32),
            "logp": _log_p(config.nll),
            "logp_lm": _log_p(alone),
        }
        return (
            arrays if config.gate is None else {**arrays, "gate": np.array(config.gate, np.float32)}
        )


STAGES.targets |= {
    one.name: StageEntry(f"{__name__}:{one.__name__}", one.kind)
    for one in (GivenModel, GivenReport)
}


def _log_p(nll: Sequence[float]) -> np.ndarray:
    """Numbers too large for float32 stand for infinity."""
    with np.errstate(over="ignore"):
        return -np.array(nll, np.float64).astype(np.float32)


def corpus(
    store: Store,
    folder: Path,
    texts: Mapping[str, str | Path],
    like: Artifact | None = None,
    **settings: Any,
) -> Artifact:
    """Tokens of texts, or folders, by split, with the vocabulary of `like`; a line is a document by
    default.
    """
    files: dict[str, Any] = {} if like is None else {"tokenizer": like.reference}
    for split, text in texts.items():
        path = (
            text
            if isinstance(text, Path)
            else folder / f"{split}-{len(list(folder.iterdir()))}.txt"
        )
        if isinstance(text, str):
            path.write_text(text, encoding="utf-8")
        files[split] = [str(path)]
    if like is not None:
        settings["tokenizer"] = "given"
    words = {} if "tokenizer" in settings else {"tokenizer": "word", "min_count": 1}
    config = TokenizeConfig(**{"documents": "line", **words, **settings})
    return make(Tokenize(), config, files, store, Execution()).artifact


def report(store: Store, tokens: Artifact, nll: Sequence[float], **settings: Any) -> Artifact:
    """A report of given negative log-likelihoods of the scored tokens."""
    model = make(
        GivenModel(), StageConfig(), {"tokens": tokens.reference}, store, Execution()
    ).artifact
    references = {"model": model.reference, "tokens": tokens.reference}
    return make(
        GivenReport(), ReportConfig(nll=tuple(nll), **settings), references, store, Execution()
    ).artifact
