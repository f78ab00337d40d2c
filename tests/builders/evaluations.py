"""Evaluations of small models, and their slow twin."""

import json

import numpy as np
import torch

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.evaluate import Evaluate
from stages.evaluation.config import EvaluateConfig
from stages.examples.windows import document_windows, windows
from stages.models.weights import load_model
from tests.stages.small_store import EOS, array


def made(store, stage, config, source, reporter=None, **references) -> Artifact:
    execution = Execution() if reporter is None else Execution(reporter=reporter)
    given = {"source": source.reference} | {n: a.reference for n, a in references.items()}
    return make(stage, config, given, store, execution).artifact


def evaluated(
    store,
    source,
    *memory,
    reporter=None,
    tokens=None,
    index=None,
    neighbors=None,
    baseline=None,
    **settings,
):
    others = {"tokens": tokens, "index": index, "neighbors": neighbors, "baseline": baseline}
    references = {name: artifact for name, artifact in others.items() if artifact is not None}
    config = EvaluateConfig(memory=memory or None, **settings)
    return made(store, Evaluate(), config, source, reporter, **references)


def metrics(report: Artifact) -> dict:
    return json.loads((report.path / "metrics.json").read_text())


def slow_plain(model: Artifact, split: str, context=8, stride=8, documents=False) -> np.ndarray:
    """log p of every token, and its key, one window at a time."""
    language_model = load_model(model.path, "cpu")
    tokens = model.input("tokens")
    ids = array(tokens, "tokens.zarr", f"{split}/ids").astype(np.int64)
    offsets = array(tokens, "tokens.zarr", f"{split}/doc_offsets")
    inputs = np.concatenate(([EOS], ids[:-1]))
    plan = (
        document_windows(offsets, context, stride, 0, len(ids))
        if documents
        else windows(len(ids), context, stride)
    )
    log_p, keys = [], []
    for w in plan:
        with torch.no_grad():
            seen = language_model.encode(torch.from_numpy(inputs[None, w.start : w.stop]))
            rows = slice(w.scored_from - w.start, None)
            dense = language_model.log_probs(seen.hidden[0, rows]).double().numpy()
        log_p += [row[i] for row, i in zip(dense, ids[w.scored_from : w.stop], strict=True)]
        keys += list(seen.ffn_input[0, rows].numpy().astype(np.float16))
    return np.array(log_p), np.array(keys), ids
