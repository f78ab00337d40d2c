"""A small index of three named documents, whose documents are changed over HTTP."""

import json
from pathlib import Path

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.text.config import TokenizeConfig
from stages.tokenize import Tokenize
from tests.stages.serving.conftest import wide_model
from tests.stages.small_text import built_index

BASE = {
    "anna": "the cat sees a hen and runs",
    "bob": "a dog sees the pig and the hen sees a dog",
    "carl": "the pig runs and the cat runs and a hen runs",
}
OTHER = "a pig sees the cat and the dog and a hen and the pig runs and sees a cat"
"""Text of the splits that are not stored."""
NEAREST = "external:k=5,temperature=2,lambda=0.4"


def document_index(folder: Path) -> Artifact:
    """An index of the documents of `BASE`, in `folder`/store."""
    store = Store(folder / "store")
    files = {}
    for split in ("train", "valid", "test"):
        path = folder / f"{split}.jsonl"
        texts = BASE if split == "train" else {split: OTHER}
        lines = [json.dumps({"name": name, "text": text}) for name, text in texts.items()]
        path.write_text("\n".join(lines) + "\n")
        files[split] = [str(path)]
    tokens = make(Tokenize(), TokenizeConfig(tokenizer="bpe"), files, store, Execution()).artifact
    return built_index(store, wide_model(store, tokens))
