"""Finds the index that a stage reads or changes: of the previous datastore, or of the text for
exact matches.

Free of FAISS and NumPy.
"""

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
"""Value for an index that is built anew."""
LEARNED = ("lists", "code_bytes", "code_bits", "links", "train_keys")
"""Settings that `auto` copies from the previous index."""
SAME = ("metric", "seed")
NEIGHBORS = "neighbors"
"""Role of the neighbours used to merge rows."""


def index_before(
    datastore: Artifact, config: IndexConfig, named: str | None, store: Store
) -> Artifact | None:
    """The previous index to change into the index of a datastore; None: it is built anew.

    Args:
        config: requested settings, not resolved.
        named: a reference, or `none`; None: the latest index in the store with these settings.
    Raises: UsageError if the named index is not of the previous datastore, or has other settings.
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
    # if the previous datastore is gone, its index is gone too: the new one is built anew
    if not store.has(record.kind, record.id):
        return None

    latest = None
    keys = described_keys(datastore)
    for index in store.artifacts("index"):
        is_previous = index.manifest.inputs.get("datastore") == record and holds_all(index)
        if is_previous and other_settings(index, config, keys) is None:
            latest = index
    return None if latest is None else store.get(latest.reference)


def _require_fitting(index: Artifact, datastore: Artifact, config: IndexConfig) -> None:
    before = datastore.manifest.inputs.get(PREVIOUS)
    if before is None or index.manifest.inputs["datastore"] != before:
        origin = f"made from {before.reference}" if before else "not made from another datastore"
        raise UsageError(
            f"{index.reference} is of {index.manifest.inputs['datastore'].reference}, but {datastore.reference} was "
            f"{origin}: leave --update out, or name an index of that."
        )
    require_all(index, "an index that is changed")
    kind = index.config["index"] if config.index == "auto" else config.index
    other = other_settings(
        index, config.model_copy(update={"index": kind}), described_keys(datastore)
    )
    if other is not None:
        raise UsageError(f"{index.reference} has {other}: ask for the same, or leave --update out.")


COUNTS = "counts.zarr/counts"
"""Number of rows that each row stands for, int32 [rows]; 0: the row is not held."""


def row_counts(index: Artifact) -> "np.ndarray | None":
    """For an index, the number of rows that each row of its datastore stands for, int32 [rows];
    None: all are held.
    """
    if holds_all(index):
        return None
    import numpy as np

    group, name = COUNTS.split("/")
    return np.asarray(index.zarr(group)[name][:])


def holds_all(index: Artifact) -> bool:
    """Whether an index of keys holds all rows of its datastore, with none merged or left out."""
    return "held" not in index.metrics


def require_all(index: Artifact, purpose: str) -> Artifact:
    """An index that holds all rows. Raises: ArtifactError, naming the `purpose`, if it does not."""
    if not holds_all(index):
        datastore = index.manifest.inputs["datastore"].reference
        raise ArtifactError(
            f"{index.reference} holds {index.metrics['held']:,} of {index.metrics['rows']:,} rows, and {purpose} needs "
            f"all of them: {index.advise('build-index', datastore)}"
        )
    return index


def inputs_of_some_rows(
    config: IndexConfig, datastore: Artifact, update: str | None, merge: str | None, store: Store
) -> Inputs:
    """Inputs of an index that leaves rows out.

    Raises: UsageError if an index is also changed, or rows are both merged and drawn at random;
        ArtifactError if the neighbours for merging do not cover all rows.
    """
    if update not in (None, NONE):
        raise UsageError(
            "--update changes an index that holds all rows: leave it out, or --merge and --keep."
        )
    if merge is None:
        return Inputs({"datastore": datastore})
    if config.keep < 1:
        raise UsageError("Rows are merged, or drawn at random: leave out --merge or --keep.")
    neighbors = store.get(merge, "neighbors")
    if is_updated(datastore):
        raise ArtifactError(
            f"{datastore.reference} was made from another one, so that its rows are of no one split whose neighbours "
            "could be named with --merge; --keep SHARE leaves rows of it out."
        )
    split = str(datastore.config["split"])
    if (
        neighbors.find("datastore").record != datastore.record
        or split not in neighbors.metrics["splits"]
    ):
        raise ArtifactError(
            f"{neighbors.reference} does not have the neighbours of each row of {datastore.reference}, by which rows "
            f"are merged: {datastore.advise('build-index', datastore.reference)} | memlm precompute-neighbors "
            f"--queries {split} --k 16"
        )
    return Inputs({"datastore": datastore, NEIGHBORS: neighbors})


def other_settings(index: Artifact, config: IndexConfig, keys: Keys) -> str | None:
    """The first setting of an index that differs from the requested ones, in words; None: all
    agree.
    """
    kind = config.index
    if kind == "auto":
        kind = automatic_kind(keys, config.largest_gigabytes)[0]
    settings: dict[str, Any] = {"index": kind}
    for name in (*SAME, *LEARNED):
        settings[name] = getattr(config, name)
    for name, value in settings.items():
        if value not in ("auto", None) and value != index.config[name]:
            return f"{name} {index.config[name]}, not {value}"
    return None


def described_keys(datastore: Artifact) -> Keys:
    """Number, width and type of the datastore's keys, from its manifest."""
    return Keys(datastore.metrics["rows"], datastore.metrics["dim"], datastore.metrics["dtype"])


EXACT = "exact"
TEXT = "text"
"""Role of an exact index in an evaluation, and role of the tokens in such an index."""


def is_exact(index: Artifact) -> bool:
    """Whether an index holds the contexts of a text instead of vectors."""
    return bool(index.config["index"] == EXACT)


def require_vectors(index: Artifact) -> Artifact:
    """An index of vectors. Raises: ArtifactError if it is an exact index, which has no model."""
    if index.kind == "index" and is_exact(index):
        raise ArtifactError(
            f"{index.reference} holds the contexts of a text, and knows no model: name one, and it beside: "
            f"memlm evaluate MODEL --index {index.reference} --memory exact."
        )
    return index


def exact_index(
    tokens: Artifact, model: Artifact, named: Artifact | None, store: Store
) -> Artifact:
    """The index for exact matches: the named one, else the latest of the model's training text.

    Args:
        tokens: the scored tokens.
    Raises: ArtifactError if there is none, or its tokenizer differs.
    """
    if named is None:
        training_tokens = model.input("tokens")
        # by digests of the text, because it may have been tokenized again
        indexes = [
            index
            for index in store.artifacts("index")
            if is_exact(index) and training_tokens.matches(index.manifest.inputs[TEXT])
        ]
        if not indexes:
            raise ArtifactError(
                f"No index of exact matches in the text of {training_tokens.reference}: build it, or name another "
                "with --index: "
                + training_tokens.advise("build-index", training_tokens.reference, "--index", EXACT)
            )
        named = store.get(indexes[-1].reference)

    text = named.input(TEXT)
    if tokenizer_digest(text) != tokenizer_digest(tokens):
        raise ArtifactError(
            f"{named.reference} holds {text.reference}, whose tokenizer is not that of {tokens.reference}: tokenize "
            f"the text with it: {tokens.advise('tokenize', '--tokenizer', tokens.reference, 'FILE')}"
        )
    return named


def exact_index_before(text: Artifact, named: str | None, store: Store) -> Artifact | None:
    """The named exact index to change into that of a text; None: it is built anew.

    Raises: UsageError if it is an index of keys; ArtifactError if its tokenizer differs.
    """
    if named in (None, NONE):
        return None
    index = store.get(str(named), "index")
    if not is_exact(index):
        raise UsageError(
            f"{index.reference} is an index of keys, none of exact matches: leave --update out."
        )
    if tokenizer_digest(index.input(TEXT)) != tokenizer_digest(text):
        raise ArtifactError(
            f"{index.reference} holds a text of another tokenizer than {text.reference}: leave --update out, and the "
            "index is built anew."
        )
    return index


def text_splits(index: Artifact, tokens: Artifact) -> set[str]:
    """The splits of a tokens artifact with the same ids as the text of an exact index, under any
    name.
    """
    digests = array_digests(index.input(TEXT), f"{index.config['split']}/ids")
    return {
        split
        for split in tokens.metrics["splits"]
        if array_digests(tokens, f"{split}/ids") == digests
    }
