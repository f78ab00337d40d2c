"""In-Context RALM: losses of its `eval_lm.py` against those of `evaluate --open-book`, on the same
model, text and passages.

memlm chooses the passages; their code is given those that it chose, for every stride.
"""

import contextlib
import io
import pickle
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.evaluate import Evaluate, EvaluateConfig
from stages.import_model import ImportConfig, ImportModel
from stages.open_book.passages import cut_passages
from stages.text.tokens import open_split
from stages.tokenize import Tokenize, TokenizeConfig
from tests.peers.agreement import Agreement, difference
from tests.peers.sources import Peer, importable, load, stand_in
from tests.stages.pretrained import tiny

PEER = Peer(
    name="In-Context RALM",
    address="AI21Labs/in-context-ralm",
    commit="d39d329673c007fc9a5dc3b61a22f6bc853df84f",
    made_equal="a passage takes the place of the first tokens of their window, and stands before a shorter one here: "
    "both are the same for passages of the full length; they read the last token of a window, whose scores nobody "
    "reads, so theirs has one token more; the first window, without a passage, is left out",
    patched="a tokenizer that knows the ids of the text and of the passages",
)
LENGTH, STRIDE, PASSAGE = 32, 4, 12
"""Tokens of their window, of a stride and of a passage."""
ROUNDED = 1e-5
"""Of losses in float32."""


def comparisons(source: Path) -> Iterator[Agreement]:
    with importable({"datasets": stand_in("datasets", load_dataset=None)}, source):
        theirs = load(source / "eval_lm.py", "eval_lm")
    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng():
        checkpoint = Path(folder) / "model"
        model = tiny.saved(checkpoint, "gpt2")
        report = _report(Store(Path(folder) / "store"), str(checkpoint), _texts(Path(folder)))
        scores = report.zarr("scores.zarr")
        log_p = np.asarray(scores["logp"][:])
        chosen = np.asarray(scores["passage"][:])
        passages = _passages(report.input("open_book"))
        losses = _their_losses(theirs, model, report, chosen, passages)

    starts = np.arange(LENGTH, len(chosen), STRIDE)
    whole = [start for start in starts if len(passages[int(chosen[start])]) == PASSAGE]
    places = np.concatenate([np.arange(start, start + STRIDE) for start in whole])
    places = places[places < len(chosen)]
    ours = -torch.from_numpy(log_p)[places]
    on = f"{len(places)} tokens of {len(whole)} strides, window {LENGTH}, gpt2, float32"
    yield Agreement("-log p of each token", on, difference([ours], [losses[places]]), ROUNDED)


def _texts(folder: Path) -> dict[str, list[str]]:
    """Sentences that come again, so that passages are found."""
    random = np.random.default_rng(0)
    lines = [" ".join(random.choice(("cat", "dog", "sat", "mat", "tree"), 7)) for _ in range(30)]
    for split, times in {"train": 60, "test": 30}.items():
        (folder / f"{split}.txt").write_text(" ".join(random.choice(lines, times)))
    return {split: [str(folder / f"{split}.txt")] for split in ("train", "test")}


def _report(store: Store, checkpoint: str, texts: Mapping[str, list[str]]) -> Artifact:
    def made(stage: Any, config: StageConfig, **references: Any) -> Artifact:
        return make(stage, config, references, store, Execution(device="cpu")).artifact

    given = TokenizeConfig(tokenizer="given", documents="file")
    tokens = made(Tokenize(), given, source=[], tokenizer=checkpoint, **texts)
    model = made(ImportModel(), ImportConfig(), source=tokens.reference, checkpoint=checkpoint)
    config = EvaluateConfig(
        memory=("none",),
        context=LENGTH - 1,
        save_token_scores=True,
        open_book={"stride": STRIDE, "query": STRIDE, "passage": PASSAGE},
    )
    return made(Evaluate(), config, source=model.reference, open_book=tokens.reference)


def _passages(book: Artifact) -> list[list[int]]:
    """Tokens of each passage, by its number."""
    split = open_split(book.zarr("tokens.zarr"), "train")
    ids = np.asarray(split.ids[:])
    offsets = np.asarray(split.doc_offsets[:])
    bounds = cut_passages(offsets, np.asarray(split.paragraph_ends[:]), PASSAGE).bounds
    return [passage.tolist() for passage in np.split(ids, bounds[1:-1])]


class _Tokenizer:
    """Knows one text, and passages by their numbers."""

    def __init__(self, ids: np.ndarray, passages: list[list[int]]) -> None:
        self.input_ids = torch.from_numpy(ids)[None]
        self._passages = passages

    def __call__(self, text: str, **how: Any) -> "_Tokenizer":
        return self

    def encode(self, text: str, max_length: int, truncation: bool) -> list[int]:
        return self._passages[int(text)][:max_length]


def _their_losses(
    theirs: ModuleType,
    model: Any,
    report: Artifact,
    chosen: np.ndarray,
    passages: list[list[int]],
) -> torch.Tensor:
    """Their loss of every token but the first, in nats, float32 [T]."""
    ids = np.asarray(report.input("tokens").zarr("tokens.zarr")["test/ids"][:], np.int64)
    retrieved = []
    begin = 0
    for end in (*range(LENGTH, len(ids), STRIDE), len(ids)):
        documents = [{"text": str(chosen[begin])}] if begin else []
        retrieved.append(
            {"begin_location": begin, "end_location": end, "retrieved_docs": documents}
        )
        begin = end
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            theirs.eval_dataset(
                model.eval(),
                _Tokenizer(ids, passages),
                "",
                torch.device("cpu"),
                LENGTH,
                folder,
                STRIDE,
                "token",
                retrieved,
                PASSAGE,
            )
        losses, *_ = pickle.loads(Path(folder, "ppls.pkl").read_bytes())
    # The first window scores all its tokens but the first.
    return torch.tensor([0.0, *(loss for window in losses for loss in window)])
