"""What a report must say, worked out one window, one position and one pair at a time, in float64."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.evaluate import Evaluate
from stages.evaluation.config import EvaluateConfig
from stages.examples.cutting import WindowSettings
from stages.examples.windows import Window, document_windows, windows
from stages.models.language_model import LanguageModel
from stages.models.vocabulary import AdaptiveVocabulary, Vocabulary
from stages.models.weights import load_model
from tests.oracles import neural_cache as oracle
from tests.oracles import spalm
from tests.stages.small_store import array

CONTEXT = 8


def evaluated(
    store: Store,
    source: Artifact,
    *memory: str,
    references: Mapping[str, Artifact] | None = None,
    **settings: Any,
) -> Artifact:
    """The report of a model, index or neighbors, with the scores of every token."""
    config = EvaluateConfig(**{"memory": memory or None, "save_token_scores": True, **settings})
    given = {"source": source, **(references or {})}
    named = {role: artifact.reference for role, artifact in given.items()}
    return make(Evaluate(), config, named, store, Execution()).artifact


def metrics(report: Artifact) -> dict[str, Any]:
    return json.loads((report.path / "metrics.json").read_text())


def vocabulary_scores(vocabulary: Vocabulary, hidden: Tensor) -> Tensor:
    """log Z + log p(w) of every token w, [n, V]; of an adaptive softmax Z is that of the head."""
    if not isinstance(vocabulary, AdaptiveVocabulary):
        return hidden @ vocabulary.output_weight.double().T
    words = [
        weight.double()
        for weight in (vocabulary.embeddings if vocabulary.tied else vocabulary.outputs)
    ]
    if vocabulary.tied:
        projected = [hidden @ projection.double() for projection in vocabulary.projections]
    else:
        projected = [
            hidden,
            *(hidden @ projection.double() for projection in vocabulary.tail_projections),
        ]
    by_rank = [projected[0] @ words[0].T]
    entries = projected[0] @ vocabulary.clusters.double().T
    for cluster in range(1, len(words)):
        tail = (projected[cluster] @ words[cluster].T).log_softmax(-1)
        by_rank.append(entries[:, cluster - 1, None] + tail)
    return torch.cat(by_rank, 1)[:, vocabulary.rank]


@dataclass(frozen=True)
class Asked:
    """One reading of the recent past: λ where it interpolates, α where it is joint."""

    theta: float = 0.5
    size: int | None = None
    local: bool = False
    scope: str = "stream"
    kind: str = "dot"
    lam: float | None = None
    alpha: float | None = None

    @classmethod
    def told(cls, memory: Mapping[str, Any]) -> "Asked":
        """The reading that a report tells of."""
        return cls(
            theta=memory["theta"],
            size=memory["size"] if "long" in memory["sources"] else None,
            local="local" in memory["sources"],
            scope=memory.get("scope", "stream"),
            kind=memory["similarity"],
            lam=memory.get("lambda"),
            alpha=memory.get("alpha"),
        )


class Slow:
    """What a model alone says of a split, and its keys in every window."""

    def __init__(
        self,
        model: Artifact,
        split: str,
        context: int = CONTEXT,
        stride: int | None = None,
        documents: bool = False,
        key: str = "hidden",
        neighbors: np.ndarray | None = None,
        mem_length: int | None = None,
    ) -> None:
        """`neighbors` int64 [T, k]: tokens that a gate lets into what is scored, never into keys."""
        tokens = model.input("tokens")
        self.ids = array(tokens, "tokens.zarr", f"{split}/ids").astype(np.int64)
        self.offsets = array(tokens, "tokens.zarr", f"{split}/doc_offsets")
        self.scores = np.zeros((len(self.ids), int(tokens.metrics["vocabulary_size"])))
        """log Z + log p(w) of every token, float64."""
        self.as_scored: dict[int, np.ndarray] = {}
        self.in_window: list[dict[int, np.ndarray]] = [{} for _ in self.ids]
        self.window_start = [0] * len(self.ids)
        self.neighbors = neighbors
        self.gate = np.ones(len(self.ids))
        """Mean of each token's gate."""
        self.similarity = cache(self._similarity)
        total, stride = len(self.ids), stride or context
        plan = windows(total, context, stride)
        if documents:
            plan = document_windows(self.offsets, context, stride, 0, total)
        inputs = np.concatenate(([tokens.metrics["eos_id"]], self.ids[:-1]))
        loaded = load_model(model.path, "cpu", WindowSettings(context, stride, mem_length))
        self._read(loaded, inputs, plan, set(self.offsets.tolist()) if documents else set(), key)

    def _read(
        self,
        model: LanguageModel,
        inputs: np.ndarray,
        plan: Sequence[Window],
        begins: set[int],
        key: str,
    ) -> None:
        """Encode one window after the other; state is dropped where one begins at a token of
        `begins`.
        """
        state = None
        for w in plan:
            if not model.config.carries_state or w.start in begins:
                state = None
            with torch.no_grad():
                seen = model.encode(
                    torch.from_numpy(inputs[None, w.start : w.stop]), state, self._back(model, w)
                )
                scores = vocabulary_scores(
                    model.vocabulary, self._softmax_reads(model, seen.hidden[0], w)
                ).numpy()
            state = seen.state
            keys = {w.start + i: one.double().numpy() for i, one in enumerate(seen.key(key)[0])}
            for t in range(w.scored_from, w.stop):
                self.scores[t] = scores[t - w.start]
                self.as_scored[t], self.in_window[t], self.window_start[t] = keys[t], keys, w.start

    def _back(self, model: LanguageModel, w: Window) -> Tensor | None:
        """How many tokens of its document stand before each of a window, for a model that reads
        documents, [1, n].
        """
        if not model.config.reads.documents:
            return None
        return torch.tensor([[t - self.document_start(t) for t in range(w.start, w.stop)]])

    def _softmax_reads(self, model: LanguageModel, hidden: Tensor, w: Window) -> Tensor:
        """Hidden states of a window as they are scored, float64 [n, d]."""
        states = hidden.double()
        if self.neighbors is None:
            return states
        assert model.gate is not None
        embeddings = model.vocabulary.embed(torch.arange(self.scores.shape[1])).numpy()
        read = states.numpy(), self.neighbors[w.start : w.stop]
        weight = model.gate.weight.numpy()
        self.gate[w.scored_from : w.stop] = spalm.gates(*read, weight).mean(1)[
            w.scored_from - w.start :
        ]
        return torch.from_numpy(spalm.gated(*read, embeddings, weight, model.gate.scale))

    @property
    def log_z(self) -> np.ndarray:
        return np.array([math.log(sum(map(math.exp, row))) for row in self.scores])

    def document_start(self, t: int) -> int:
        return int(self.offsets[np.searchsorted(self.offsets, t, side="right") - 1])

    def _similarity(self, t: int, j: int, in_window: bool, kind: str) -> float:
        key = self.in_window[t][j] if in_window else self.as_scored[j]
        return oracle.similarity(self.as_scored[t].tolist(), key.tolist(), kind)

    def entries(self, t: int, asked: Asked) -> list[tuple[float, int]]:
        """(score, token) of what position t reads, the nearest first; scores after θ."""
        start = self.document_start(t) if asked.scope == "document" else 0
        window = self.window_start[t] if asked.local else None
        read = oracle.positions_read(t, size=asked.size, document_start=start, window_start=window)
        near = {j: asked.local and j in self.in_window[t] for j in read}
        return [
            (asked.theta * self.similarity(t, j, near[j], asked.kind), int(self.ids[j]))
            for j in read
        ]

    def distribution(self, t: int, *readings: Asked) -> list[float]:
        """p(w) of every token w at position t, with readings on top of each other."""
        weights = np.exp(self.scores[t] - self.scores[t].max())
        p = (weights / weights.sum()).tolist()
        for asked in readings:
            entries = self.entries(t, asked)
            if asked.alpha is None:
                p = oracle.interpolated(p, entries, asked.lam)
            else:
                p = oracle.joint(self.scores[t].tolist(), entries, asked.alpha)
        return p

    def log_p(self, **asked: Any) -> np.ndarray:
        """log p of every target with one reading of memory."""
        reading = Asked(**asked)
        return np.array(
            [math.log(self.distribution(t, reading)[target]) for t, target in enumerate(self.ids)]
        )
