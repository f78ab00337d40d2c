"""Compare the keys of a real encoder in memlm with transformers' hidden states, on English, German,
Chinese and Python.

    python -m tests.endurance.encoder MODEL [--context 32]        MODEL: a folder, or hf:NAME

Tokenizes a document of each, imports the encoder and builds a float32 datastore of all, in a store
that vanishes afterwards; every window is also read by transformers, from ids. Prints the largest
difference of a number of a key, and the length of the keys; fails if ids differ, or a difference is
above 1e-5.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.import_model import ImportConfig, ImportModel
from stages.models.config import model_of
from stages.pretrained.damage import quiet
from stages.pretrained.location import Location, locate
from stages.tokenize import Tokenize, TokenizeConfig
from tests.endurance.pretrained import made, texts, written

LARGEST = 1e-5
AT_ONCE = 64
"""Windows that transformers reads together."""


def encoded(store: Store, spec: str, context: int, folder: Path) -> tuple[Artifact, Artifact]:
    """Tokens of the texts, a document each, and a datastore of them."""
    files = written(folder)
    config = TokenizeConfig(tokenizer="given")
    tokens = made(store, Tokenize(), config, source=[], tokenizer=spec, train=files)
    model = made(store, ImportModel(), ImportConfig(), source=tokens.reference, checkpoint=spec)
    keys = DatastoreConfig(context=context, dtype="float32")
    return tokens, made(store, BuildDatastore(), keys, source=model.reference)


def opened(location: Location) -> tuple[Any, Any]:
    """Tokenizer and model as transformers reads them."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(location.folder))
    return tokenizer, AutoModel.from_pretrained(str(location.folder), dtype=torch.float32).eval()


@torch.no_grad()
def keys_of(model: Any, config: Any, ids: np.ndarray, start: int, context: int) -> np.ndarray:
    """Of each token, [T, d]: the pooled hidden states of the `context` inputs before it, between
    [CLS] and [SEP].
    """
    inputs = [start, *ids[:-1].tolist()]
    windows = [
        [*config.before, *inputs[max(0, t + 1 - context) : t + 1], *config.after]
        for t in range(len(ids))
    ]
    found = [pool(model, config, windows[t : t + 1]) for t in range(min(context, len(ids)))]
    whole = range(min(context, len(ids)), len(ids), AT_ONCE)
    found += [pool(model, config, windows[t : t + AT_ONCE]) for t in whole]
    return np.concatenate(found)


def pool(model: Any, config: Any, windows: list[list[int]]) -> np.ndarray:
    """One vector of each window, all of one length, as sentence-transformers makes it."""
    read = torch.tensor(windows)
    hidden = model(input_ids=read, attention_mask=torch.ones_like(read)).last_hidden_state
    vectors = {
        "mean": lambda: hidden.mean(1),
        "cls": lambda: hidden[:, 0],
        "max": lambda: hidden.amax(1),
    }
    vector = vectors[config.pooling]()
    return np.asarray(vector / vector.norm(dim=1, keepdim=True) if config.normalize else vector)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--context", type=int, default=32)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store")
        tokens, datastore = encoded(store, options.model, options.context, Path(folder))
        ids = np.asarray(tokens.zarr("tokens.zarr")["train/ids"][:]).astype(np.int64)
        ends = np.asarray(tokens.zarr("tokens.zarr")["train/doc_offsets"][:])
        ours = np.asarray(datastore.zarr("datastore.zarr")["keys"][:])
        config = model_of(datastore.input("encoder"))
    with quiet():
        tokenizer, model = opened(locate(options.model))
    special = tokens.metrics
    theirs = keys_of(
        model, config, ids, special.get("start_id", special["eos_id"]), options.context
    )
    worst = 0.0
    for (name, text), start, stop in zip(texts().items(), ends[:-1], ends[1:], strict=True):
        wanted = [*tokenizer(text, add_special_tokens=False).input_ids, special["eos_id"]]
        assert wanted == ids[start:stop].tolist(), f"{name}: other ids"
        difference = np.abs(ours - theirs)[start:stop]
        length = np.linalg.norm(theirs[start:stop], axis=1).mean()
        same = (difference.max(axis=1) == 0).sum()
        print(
            f"{name:8} {stop - start:5} tokens, keys {length:.3f} long, largest difference {difference.max():.1e}, "
            f"{same} keys bit for bit"
        )
        worst = max(worst, float(difference.max()))
    sys.exit(f"differences up to {worst:.1e}" if worst > LARGEST else 0)


if __name__ == "__main__":
    main()
