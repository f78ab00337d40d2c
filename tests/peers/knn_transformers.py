"""knn-transformers: its datastore and its kNN-LM against memlm's, on the same model and the same
text.

`python -m tests.peers.knn_transformers_speed` does the same with a real model, and with the time
that both take.
"""

import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import faiss
import numpy as np
import torch

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.evaluate import Evaluate, EvaluateConfig
from stages.import_model import ImportConfig, ImportModel
from stages.index import BuildIndex, IndexConfig
from stages.tokenize import Tokenize, TokenizeConfig
from tests.peers.agreement import Agreement, difference
from tests.peers.sources import Peer, load
from tests.stages.pretrained import tiny

PEER = Peer(
    name="knn-transformers",
    address="neulab/knn-transformers",
    commit="5b370d2d2eeb7a02ecb23e6c39d09ea34ae0fd49",
    made_equal="their windows begin with the input before the first token, and have one input more, whose scores "
    "nobody reads, so that both score every token once; both search all keys (theirs: an IVF index of one list) "
    "with queries rounded to float16, as the keys are",
    patched="llama is added to their table of layers",
)
WORDS = (
    "the",
    "a",
    "cat",
    "dog",
    "bird",
    "sat",
    "ran",
    "on",
    "under",
    "mat",
    "tree",
    "and",
    "then",
    "it",
)
LENGTH, K, LAMBDA, TEMPERATURE = 16, 32, 0.25, 5.0
ROUNDED = 1e-5
"""Of log-probabilities in float32: distances are summed in another order."""


@dataclass(frozen=True)
class Setting:
    """What both sides are given."""

    length: int
    """Tokens of a window."""
    k: int
    weight: float
    temperature: float

    @property
    def memory(self) -> str:
        return f"external:k={self.k},lambda={self.weight},temperature={self.temperature}"


def comparisons(source: Path) -> Iterator[Agreement]:
    theirs, setting = knnlm(source), Setting(LENGTH, K, LAMBDA, TEMPERATURE)
    for family in ("gpt2", "llama"):
        with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng():
            model = tiny.saved(Path(folder) / "model", family)
            texts = _texts(Path(folder))
            ours = Ours(Store(Path(folder) / "store"), str(Path(folder) / "model"), texts, setting)
            keys, values = save(theirs, model, ours.ids("train"), ours.start, setting, Path(folder))
            on = f"{len(values)} keys, {len(ours.ids('test'))} tokens, {family}, float32"
            mine = ours.datastore.zarr("datastore.zarr")
            stored = torch.tensor(mine["keys"][:]).float()
            # their windows have one input more, so that the last bit of a float16 may be another
            yield Agreement("keys, in float16", on, difference([stored], [keys]), 2.0**-10)
            yield Agreement(
                "values", on, difference([torch.tensor(mine["values"][:])], [values]), 0.0
            )
            one_list(theirs, model, Path(folder), len(values))
            log_p = read(
                theirs, model, ours.ids("test"), ours.start, setting, Path(folder), len(values)
            )
            scores = torch.from_numpy(ours.report.zarr("scores.zarr")["logp"][:])
            yield Agreement("log p of kNN-LM", on, difference([scores], [log_p]), ROUNDED)


def _texts(folder: Path) -> dict[str, str]:
    """Sentences that come again and again: neighbours hold the right token."""
    random = np.random.default_rng(0)
    lines = [" ".join(random.choice(WORDS, 7)) for _ in range(30)]
    for split, times in {"train": 60, "valid": 10, "test": 30}.items():
        (folder / f"{split}.txt").write_text("\n".join(random.choice(lines, times)) + "\n")
    return {split: str(folder / f"{split}.txt") for split in ("train", "valid", "test")}


class Ours:
    """What memlm makes: tokens, model, datastore, an index of all keys, and a report with the
    scores of all tokens.
    """

    def __init__(
        self, store: Store, checkpoint: str, texts: Mapping[str, str], setting: Setting
    ) -> None:
        self.store, windows = store, {"context": setting.length}
        self.seconds: dict[str, float] = {}
        """Of the processor, by kind of artifact."""
        files = {split: [text] for split, text in texts.items()}
        given = TokenizeConfig(tokenizer="given", documents="file")
        self.tokens = self._made(Tokenize(), given, source=[], tokenizer=checkpoint, **files)
        self.model = self._made(
            ImportModel(), ImportConfig(), source=self.tokens.reference, checkpoint=checkpoint
        )
        self.datastore = self._made(
            BuildDatastore(), DatastoreConfig(**windows), source=self.model.reference
        )
        self.index = self._made(
            BuildIndex(), IndexConfig(index="flat"), source=self.datastore.reference
        )
        asked = EvaluateConfig(memory=(setting.memory,), save_token_scores=True, **windows)
        self.report = self._made(Evaluate(), asked, source=self.index.reference)

    def _made(self, stage: Any, config: StageConfig, **references: Any) -> Artifact:
        started = time.process_time()
        made = make(stage, config, references, self.store, Execution(device="cpu")).artifact
        self.seconds[made.kind] = time.process_time() - started
        return made

    def ids(self, split: str) -> np.ndarray:
        return np.asarray(self.tokens.zarr("tokens.zarr")[f"{split}/ids"][:]).astype(np.int64)

    @property
    def start(self) -> int:
        """The input before the first token."""
        return int(self.tokens.metrics["start_id"])


# Their side


def knnlm(source: Path) -> ModuleType:
    """Their module, which also knows where the last feed-forward of a llama is."""
    module = load(source / "knnlm.py", "knnlm")
    place = lambda model: model.base_model.layers[-1].mlp  # noqa: E731
    module.KNNWrapper.model_layer_to_capture["llama"] = {
        module.KEY_TYPE.last_ffn_input: (place, True)
    }
    return module


def windows(ids: np.ndarray, start: int, length: int) -> Iterator[dict[str, torch.Tensor]]:
    """Inputs and labels, [1, n + 1] each, for every n <= `length` tokens: the first has no label."""
    before = np.concatenate(([start], ids[:-1]))
    for at in range(0, len(ids), length):
        inputs = torch.from_numpy(np.concatenate((before[at : at + 1], ids[at : at + length])))[
            None
        ]
        labels = inputs.clone()
        labels[:, 0] = -100
        yield {"input_ids": inputs, "labels": labels}


@torch.no_grad()
def save(
    theirs: ModuleType, model: Any, ids: np.ndarray, start: int, setting: Setting, folder: Path
) -> tuple[torch.Tensor, torch.Tensor]:
    """Their datastore of a text: keys float [n, d], values int [n]."""
    saver = theirs.KNNSaver(
        len(ids), str(folder), model.config.hidden_size, theirs.KEY_TYPE.last_ffn_input
    )
    saver.break_into(model)
    for window in windows(ids, start, setting.length):
        model(**window)
    saver.break_out()
    saver.dstore_keys.flush()
    saver.dstore_vals.flush()
    return torch.tensor(np.array(saver.dstore_keys)).float(), torch.tensor(
        np.array(saver.dstore_vals[:, 0])
    )


def one_list(theirs: ModuleType, model: Any, folder: Path, rows: int) -> None:
    """An index of theirs that compares all keys: they ask for one with lists."""
    dim, kind = model.config.hidden_size, model.config.model_type
    path = theirs.get_dstore_path(str(folder), kind, rows, dim)
    keys = np.array(np.memmap(f"{path}_keys.npy", np.float16, "r", shape=(rows, dim)), np.float32)
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(dim), dim, 1)
    index.train(keys)
    index.add(keys)
    faiss.write_index(index, theirs.get_index_path(str(folder), kind, rows, dim))


@torch.no_grad()
def read(
    theirs: ModuleType,
    model: Any,
    ids: np.ndarray,
    start: int,
    setting: Setting,
    folder: Path,
    rows: int,
    rounded: bool = True,
    **more: Any,
) -> torch.Tensor:
    """Log-probabilities that their kNN-LM gives the tokens of a text, float32 [n].

    Args:
        rounded: whether queries are made float16, as memlm makes them.
        more: settings of theirs.
    """
    wrapper = theirs.KNNWrapper(
        rows,
        str(folder),
        model.config.hidden_size,
        theirs.DIST.l2,
        theirs.KEY_TYPE.last_ffn_input,
        move_dstore_to_mem=True,
        **{"k": setting.k, "lmbda": setting.weight, "knn_temp": setting.temperature, **more},
    )
    if rounded:
        search = wrapper.get_knns
        wrapper.get_knns = lambda queries: search(queries.half().float())
    wrapper.break_into(model)
    try:
        return log_probs(model, ids, start, setting)
    finally:
        wrapper.break_out()


@torch.no_grad()
def log_probs(model: Any, ids: np.ndarray, start: int, setting: Setting) -> torch.Tensor:
    """Log-probabilities of the tokens of a text, float32 [n], by the model's scores or what they
    made of them.
    """
    return torch.cat([_log_p(model, window) for window in windows(ids, start, setting.length)])


def _log_p(model: Any, window: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Of the tokens of a window, [n]; log-probabilities stay what they are."""
    scores = model(**window).logits[0, :-1].log_softmax(-1)
    return scores.gather(1, window["input_ids"][0, 1:, None])[:, 0]
