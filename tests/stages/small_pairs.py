"""Small artifacts made of pairs of sentences, by a pretrained translation model that knows nothing."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.import_model import ImportConfig, ImportModel
from stages.tokenize import Tokenize, TokenizeConfig

SENTENCES = [
    ("zwei Hunde", "The dog sat."),
    ("das ist gut", "The cat sat on the mat."),
    ("ja", "x"),
]
SPLITS = {"train": [*SENTENCES, ("nein", "dog")], "valid": SENTENCES[:2], "test": SENTENCES}


def pair_tokens(
    store: Store, pretrained: Path, splits: Mapping[str, Sequence[tuple[str, str]]] = SPLITS
) -> Artifact:
    """Tokens of pairs, by the tokenizer of a pretrained model; their files lie beside its folder."""
    folder = pretrained.parent
    for split, pairs in splits.items():
        for side, language in enumerate(("de", "en")):
            (folder / f"{split}.{language}").write_text(
                "".join(f"{pair[side]}\n" for pair in pairs), "utf-8"
            )
    config = TokenizeConfig(tokenizer="given", source_language="de", target_language="en")
    files = {split: [str(folder / split)] for split in splits}
    return make(
        Tokenize(), config, {"tokenizer": str(pretrained), **files}, store, Execution()
    ).artifact


def imported_translator(store: Store, pretrained: Path, tokens: Artifact) -> Artifact:
    """The pretrained model as one of memlm."""
    references = {"source": tokens.reference, "checkpoint": str(pretrained)}
    return make(ImportModel(), ImportConfig(), references, store, Execution()).artifact
