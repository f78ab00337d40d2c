"""Which index a stage reads or changes: of the datastore before, or of the text whose matches are found.

Free of FAISS and NumPy.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.kinds import PREVIOUS
from stages.artifacts.stage import Inputs
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.lineage.corpus import array_digests, tokenizer_digest
from stages.lineage.sources import is_updated
from stages.search.automatic import automatic_kind
from stages.search.config import IndexConfig, Keys

if TYPE_CHECKING:
    import numpy as np

NONE = "none"
"""Stands for an index that is to be built anew."""
LEARNED = ("lists", "code_bytes", "code_bits", "links", "train_keys")
"""Settings that `auto` leaves as they are in the index before."""
SAME = ("metric", "seed")
NEIGHBORS = "neighbors"
"""Role of the neighbours by which rows are merged."""


def index_before(datastore: Artifact, config: IndexConfig, named: str | None, store: Store) -> Artifact | None:
    """The index that is to be changed into that of a datastore, if one is to be.

    Args:
        config: what is asked for, not resolved.
        named: a reference; `none`; None: the latest of such settings that the store has.
    Raises: UsageError if the index that is named is not one of the datastore before, or of other settings.
    """
    if named == NONE:
        return None
    if named is not None:
        index = store.get(named, "index")
        _require_fitting(index, datastore, config)
        return index
    if not is_updated(datastore):
        return None
    record = datastore.manifest.inputs[PREVIOUS]
    # the datastore before may be gone, and its index with it: then the index is built anew
    if not store.has(record.kind, record.id):
        return None
    found = [
        one
        for one in store.artifacts("index")
        if one.manifest.inputs.get("datastore") == record
        and holds_all(one)
        and other_settings(one, config, described_keys(datastore)) is None
    ]
    return store.get(found[-1].reference) if found else None


def _require_fitting(index: Artifact, datastore: Artifact, config: IndexConfig) -> None:
    before = datastore.manifest.inputs.get(PREVIOUS)
    if before is None or index.manifest.inputs["datastore"] != before:
        made = f"made from {before.reference}" if before else "not made from another datastore"
        raise UsageError(
            f"{index.reference} is of {index.manifest.inputs['datastore'].reference}, but {datastore.reference} was "
            f"{made}: leave --update out, or name an index of that."
        )
    require_all(index, "an index that is changed")
    other = other_settings(index, config.model_copy(update={"index": _kind(index, config)}), described_keys(datastore))
    if other is not None:
        raise UsageError(f"{index.reference} has {other}: ask for the same, or leave --update out.")


def _kind(index: Artifact, config: IndexConfig) -> str:
    """The kind asked for; where none is, that of the index that is named."""
    return str(index.config["index"]) if config.index == "auto" else config.index


COUNTS = "counts.zarr/counts"
"""How many rows each stands for, int32 [rows]; 0 of one that is not held."""


def row_counts(index: Artifact) -> "np.ndarray | None":
    """How many rows of its datastore each of them stands for in an index, int32 [rows]; None: all are held."""
    if holds_all(index):
        return None
    import numpy as np

    group, name = COUNTS.split("/")
    return np.asarray(index.zarr(group)[name][:])


def holds_all(index: Artifact) -> bool:
    """Whether an index of keys holds all rows of its datastore: none were merged, none left out."""
    return "held" not in index.metrics


def require_all(index: Artifact, purpose: str) -> Artifact:
    """An index that holds all rows. Raises: ArtifactError if it does not; `purpose` is what it would be read for."""
    if not holds_all(index):
        datastore = index.manifest.inputs["datastore"].reference
        raise ArtifactError(
            f"{index.reference} holds {index.metrics['held']:,} of {index.metrics['rows']:,} rows, and {purpose} needs "
            f"all of them: {index.advise('build-index', datastore)}"
        )
    return index


def require_own_neighbors(neighbors: Artifact, datastore: Artifact) -> Artifact:
    """Neighbours by which the rows of a datastore are merged. Raises: ArtifactError if they are not of all its rows."""
    if is_updated(datastore):
        raise ArtifactError(
            f"{datastore.reference} was made from another one, so that its rows are of no one split whose neighbours "
            "could be named with --merge; --keep SHARE leaves rows of it out."
        )
    split = str(datastore.config["split"])
    if neighbors.find("datastore").record != datastore.record or split not in neighbors.metrics["splits"]:
        raise ArtifactError(
            f"{neighbors.reference} does not have the neighbours of each row of {datastore.reference}, by which rows "
            f"are merged: {datastore.advise('build-index', datastore.reference)} | memlm precompute-neighbors "
            f"--queries {split} --k 16"
        )
    return neighbors


def inputs_of_some_rows(
    config: IndexConfig, datastore: Artifact, update: str | None, merge: str | None, store: Store
) -> Inputs:
    """Inputs of an index that leaves rows out.

    Raises: UsageError if an index is to be changed, too, or rows are to be merged and drawn at random.
    """
    if update not in (None, NONE):
        raise UsageError("--update changes an index that holds all rows: leave it out, or --merge and --keep.")
    if merge is None:
        return Inputs({"datastore": datastore})
    if config.keep < 1:
        raise UsageError("Rows are merged, or drawn at random: leave out --merge or --keep.")
    return Inputs({"datastore": datastore, NEIGHBORS: require_own_neighbors(store.get(merge, "neighbors"), datastore)})


def other_settings(index: Artifact, config: IndexConfig, keys: Keys) -> str | None:
    """The first setting of an index, in words, that is not what is asked for; None if all are."""
    kind = automatic_kind(keys, config.largest_gigabytes)[0] if config.index == "auto" else config.index
    asked: dict[str, Any] = {"index": kind} | {name: getattr(config, name) for name in (*SAME, *LEARNED)}
    for name, value in asked.items():
        if value not in ("auto", None) and value != index.config[name]:
            return f"{name} {index.config[name]}, not {value}"
    return None


def described_keys(datastore: Artifact) -> Keys:
    """Number, width and type of the datastore's keys, from its manifest."""
    return Keys(datastore.metrics["rows"], datastore.metrics["dim"], datastore.metrics["dtype"])


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
        # by the digests of the text, since it may have been tokenized again
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


def exact_index_before(text: Artifact, named: str | None, store: Store) -> Artifact | None:
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
