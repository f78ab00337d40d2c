"""The exact index whose text is matched, beside whatever else an evaluation reads. Free of NumPy."""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.lineage.corpus import array_digests, tokenizer_digest
from stages.lineage.indexes import NONE

EXACT, TEXT = "exact", "text"
"""Role of such an index in an evaluation, and of the tokens in the index."""


def is_exact(index: Artifact) -> bool:
    """Whether an index holds the contexts of a text, and no vectors."""
    return bool(index.config["index"] == EXACT)


def named_apart(references: Mapping[str, Any], store: Store, matched: bool) -> tuple[dict[str, Any], Artifact | None]:
    """References without the exact index that `index` may name, and that one, where a text is `matched`."""
    named = references.get("index") if matched else None
    index = None if named is None else store.get(named, "index")
    if index is None or not is_exact(index):
        return dict(references), None
    return {role: one for role, one in references.items() if role != "index"}, index


def require_vectors(index: Artifact) -> Artifact:
    """An index of vectors. Raises: ArtifactError if it is an exact index, which knows no model."""
    if index.kind == "index" and is_exact(index):
        raise ArtifactError(
            f"{index.reference} holds the contexts of a text, and knows no model: name one, and it beside: "
            f"memlm evaluate MODEL --index {index.reference} --memory exact."
        )
    return index


def exact_index(tokens: Artifact, model: Artifact, named: Artifact | None, store: Store) -> Artifact:
    """The index whose text is matched: the one that is named, else the latest of the model's training text.

    Args:
        tokens: that are scored.
    Raises: ArtifactError if there is none, or it is of another tokenizer.
    """
    if named is None:
        own = model.input("tokens")
        found = [one for one in store.artifacts("index") if is_exact(one) and own.matches(one.manifest.inputs[TEXT])]
        if not found:
            raise ArtifactError(
                f"No index of exact matches in the text of {own.reference}: build it, or name another with --index: "
                + own.advise("build-index", own.reference, "--index", EXACT)
            )
        named = store.get(found[-1].reference)
    text = named.input(TEXT)
    if tokenizer_digest(text) != tokenizer_digest(tokens):
        raise ArtifactError(
            f"{named.reference} holds {text.reference}, whose tokenizer is not that of {tokens.reference}: tokenize "
            f"the text with it: {tokens.advise('tokenize', '--tokenizer', tokens.reference, 'FILE')}"
        )
    return named


def index_before(text: Artifact, named: str | None, store: Store) -> Artifact | None:
    """The exact index that is changed into that of a text: the one that is named, unless it is `none`.

    Raises: UsageError or ArtifactError if it is of keys, or of another tokenizer.
    """
    if named in (None, NONE):
        return None
    index = store.get(str(named), "index")
    if not is_exact(index):
        raise UsageError(f"{index.reference} is an index of keys, none of exact matches: leave --update out.")
    if tokenizer_digest(index.input(TEXT)) != tokenizer_digest(text):
        raise ArtifactError(
            f"{index.reference} holds a text of another tokenizer than {text.reference}: leave --update out, and the "
            "index is built anew."
        )
    return index


def text_splits(index: Artifact, tokens: Artifact) -> set[str]:
    """The splits of a tokens artifact that the text of an exact index is, whatever they are called."""
    held = array_digests(index.input(TEXT), f"{index.config['split']}/ids")
    return {split for split in tokens.metrics["splits"] if array_digests(tokens, f"{split}/ids") == held}
