"""Artifacts made in a moment that hold what a page reads of them, and a page of them taken apart."""

import json
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from typing import Any

from pydantic import Field

from stages.artifacts.artifact import Artifact
from stages.artifacts.kinds import KINDS, STAGES
from stages.artifacts.make import make
from stages.artifacts.stage import Execution, Inputs, Job, SerialStage
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.pages.lineage import Member
from stages.pages.source import ReportSource
from stages.reports.remarks.table import REPORT, remarks_on

BY_DEFAULT = {
    **{
        "method": "lm",
        "split": "test",
        "score": "all",
        "tokens": 4321,
        "curves": [],
        "memories": [],
    },
    "read": {"tokens": "tokens/1", "model": "model/1"},
}
"""Parts of `metrics.json` that every table reads."""


def source(report: Mapping[str, Any]) -> ReportSource:
    """A report that is in no store, by the content of its `metrics.json`."""
    rows = [{"memories": [], "word_perplexity": None, **row} for row in report["rows"]]
    found = {**BY_DEFAULT, **report, "rows": rows}
    return ReportSource(
        Member("report/0123456789ab", None), found, {}, "", "", True, remarks_on(REPORT, found)
    )


VOID = {"meta", "br", "img", "link", "input", "hr"}


STATED = ("split", "score", "tokens", "method", "rows", "outside_repeated_paragraphs")
READ_OF_A_REPORT = {
    "method": "lm",
    "split": "test",
    "score": "all",
    "memories": [],
    "rows": [{"row": "plain"}],
}
"""What others expect in the manifest of every report."""
READ_OF_A_ROW = {"perplexity": None, "nll": None}


class MadeConfig(StageConfig):
    split: str = "test"
    score: str = "all"
    reset: str = "none"
    """As every report says."""
    seed: int = 0
    method: str = "lm"
    files: dict[str, str] = Field({})
    metrics: dict[str, Any] = Field({})


class Made(SerialStage[MadeConfig]):
    """An artifact of any kind, with the given files, metrics and inputs."""

    Config = MadeConfig

    def __init__(self, kind: str, found: Mapping[str, Any] | None = None) -> None:
        """`found`: a report that no setting says, as what a model of another seed gives."""
        self.name, self.kind, self.found = f"made-{kind}", kind, found

    def inputs(self, config: MadeConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        return Inputs({role: store.get(reference) for role, reference in references.items()})

    def run(self, job: Job[MadeConfig]) -> dict[str, Any]:
        for file, text in job.config.files.items():
            job.draft.add(file).write_text(text, "utf-8")
        if self.found is None:
            return _stated(job.config.metrics) if self.kind == "report" else job.config.metrics
        job.draft.add("metrics.json").write_text(json.dumps(self.found), "utf-8")
        return _stated(
            job.config.metrics | {name: self.found[name] for name in STATED if name in self.found}
        )


for _kind in KINDS:
    globals()[f"made_{_kind}"] = Made(_kind)
    STAGES.targets[f"made-{_kind}"] = f"{__name__}:made_{_kind}"


def _stated(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of a report, its rows with all that a manifest says of one."""
    return {**metrics, "rows": [READ_OF_A_ROW | row for row in metrics["rows"]]}


def made(store: Store, kind: str, name: str = "", **parts: Any) -> Artifact:
    """An artifact; `files` and `metrics` by name, `found` of a report; what else is given are
    inputs by role.
    """
    files, found = parts.pop("files", {}), parts.pop("found", None)
    content = json.loads(files.get("metrics.json", "{}"))
    stated = {key: content[key] for key in STATED if key in content}
    metrics = (READ_OF_A_REPORT | stated if kind == "report" else {}) | parts.pop("metrics", {})
    config = MadeConfig(
        files=files, metrics=metrics, seed=parts.pop("seed", 0), method=parts.pop("method", "lm")
    )
    references = {role: artifact.reference for role, artifact in parts.items()}
    artifact = make(Made(kind, found), config, references, store, Execution()).artifact
    if name:
        store.name(artifact, name)
    return artifact


def chain(store: Store, report: Mapping[str, Any] | None = None) -> Artifact:
    """tokens -> model -> datastore -> index -> report; gives the report."""
    splits = {"test": {"tokens": 40}, "train": {"tokens": 900}}
    tokens = made(store, "tokens", "corpus", metrics={"vocabulary_size": 11, "splits": splits})
    files = {"training.jsonl": "\n".join(map(json.dumps, training(60))), "config.json": "{}"}
    model = made(
        store,
        "model",
        "lm",
        files=files,
        metrics={"parameters": 1234},
        tokens=tokens,
    )
    datastore = made(
        store, "datastore", metrics={"rows": 900, "dim": 8}, encoder=model, corpus=tokens
    )
    index = made(store, "index", metrics={"rows": 900}, datastore=datastore)
    read = {"model": model, "tokens": tokens, "index": index}
    told = metrics(report or {}, {role: artifact.reference for role, artifact in read.items()})
    files = {"metrics.json": json.dumps(told), "passage.json": json.dumps(PASSAGE)}
    return made(store, "report", "first", files=files, **read)


def training(steps: int) -> list[dict[str, Any]]:
    """Lines of a `training.jsonl`: loss 5 / step, every tenth with one of validation."""
    return [
        {
            "step": step,
            "tokens": 8 * step,
            "loss": 5 / step,
            "valid_loss": 6 / step if step % 10 == 0 else None,
            "learning_rate": 0.001 * step,
        }
        for step in range(1, steps + 1)
    ]


def row(name: str, perplexity: float | None, memories: Any = ()) -> dict[str, Any]:
    return {
        **{
            "row": name,
            "perplexity": perplexity,
            "word_perplexity": perplexity,
            "nll": 1.5,
            "diverged": False,
        },
        **{
            "bits_per_character": 1.2345678,
            "tokens_per_second": 1234.5,
            "memories": list(memories),
        },
    }


CACHE = {
    **{
        "sources": ["long"],
        "reader": "interpolate",
        "similarity": "dot",
        "key": "hidden",
        "size": 500,
    },
    **{"theta": 0.3, "lambda": 0.125, "tuned": ["theta", "lambda"], "tune_split": "valid"},
}


PASSAGE = {
    **{"split": "test", "start": 5, "stop": 7},
    "tokens": [
        {"text": text, "probability": 0.5, "gate": [0.25], "neighbors": ["a"]}
        for text in ("the", "cat")
    ],
}


def metrics(changes: Mapping[str, Any], read: Mapping[str, str]) -> dict[str, Any]:
    """A `metrics.json` that has something for every part of a page."""
    told = {
        **{"split": "test", "score": "all", "tokens": 40, "method": "lm", "read": dict(read)},
        "rows": [row("plain", 167.9187154621268), row("neural-cache", 113.5703, [CACHE])],
        "outside_repeated_paragraphs": {
            **{"tokens": 30, "repeated_tokens": 10, "repeated_share": 0.25, "texts": []},
            "rows": [
                {"row": "plain", "perplexity": 174.25},
                {"row": "neural-cache", "perplexity": 120.5},
            ],
        },
        "frequency_buckets": {
            "counted_in": "train",
            "buckets": [
                {"more_than": 10, "at_most": None, "tokens": 2500},
                {"more_than": 0, "at_most": 10, "tokens": 1500},
            ],
            "rows": [
                {"row": "plain", "nll": [3.0, 6.0], "perplexity": [20.0, 400.0]},
                {"row": "neural-cache", "nll": [2.9, 4.6], "perplexity": [19.0, 100.0]},
            ],
        },
        "retrieval_accuracy": {"1": 0.125, "8": 0.5},
        "curves": [
            {
                "row": "neural-cache",
                "over": "size",
                "points": [
                    {"size": 100, "perplexity": 140.5},
                    {"size": 500, "perplexity": 113.5703},
                ],
            }
        ],
        "grid": {
            **{
                "split": "valid",
                "row": "neural-cache",
                "over": "size",
                "at": 500,
                "tokens": 30,
                "plain_nll": 5.0,
            },
            **{
                "scale_name": "theta",
                "scales": [0.1, 0.3],
                "weight_name": "lambda",
                "weights": [0.1, 0.125, 0.9],
            },
            "nll": [[4.9, 4.8, 5.5], [4.7, 4.6, None]],
        },
        "gate": {
            "neighbors": 4,
            "mean": 0.25,
            "histogram": {"edges": [0.0, 0.5, 1.0], "tokens": [3, 1], "values": [70, 30]},
            "neighbors_right": {"1": 0.125, "4": 0.25},
            "by_neighbors": [],
        },
    }
    return told | dict(changes)


class Outline(HTMLParser):
    """What a page is made of; fails where an element is not closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == [], f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def all(self, *tags: str) -> Iterator[dict[str, str | None]]:
        """The attributes of every element of these kinds."""
        return (attributes for tag, attributes in self.elements if tag in tags)

    def values(self, name: str) -> list[str]:
        """Every value of an attribute."""
        return [
            value for _, attributes in self.elements if (value := attributes.get(name)) is not None
        ]
