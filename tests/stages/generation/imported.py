"""A small imported model in a store, with its exact index and an index of its text."""

from pathlib import Path
from typing import Any, NamedTuple

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.import_model import ImportConfig, ImportModel
from stages.tokenize import Tokenize, TokenizeConfig
from tests.stages.pretrained.tiny import saved
from tests.stages.small_text import built_index, story


class Imported(NamedTuple):
    """An index of an imported model, and the model as transformers has it."""

    index: Artifact
    theirs: Any
    folder: Path


def imported_index(
    folder: Path, family: str = "llama", bos: bool = False, context: int = 16, **settings: Any
) -> Imported:
    """Import a tiny model over three stories, with windows of `context` inputs."""
    theirs = saved(folder / family, family, bos=bos, **settings)
    store, spec = Store(folder / "store"), str(folder / family)
    files = {}
    for seed, (split, lines) in enumerate({"train": 27, "valid": 6, "test": 6}.items()):
        (folder / f"{split}.txt").write_text(story(lines, seed))
        files[split] = [str(folder / f"{split}.txt")]
    config = TokenizeConfig(tokenizer="given")
    tokens = make(Tokenize(), config, {"tokenizer": spec, **files}, store, Execution()).artifact
    references = {"source": tokens.reference, "checkpoint": spec}
    importing = ImportConfig(segment_length=context)
    model = make(ImportModel(), importing, references, store, Execution()).artifact
    # Half precision rounds queries, too: one that is read beside others may fall to the other side.
    index = built_index(store, model, {"dtype": "float32"})
    return Imported(index, theirs, folder / family)
