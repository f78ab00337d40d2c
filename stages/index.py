"""Stage build-index: datastore -> index; tokens -> index of exact matches.

`stages.indexing.vectors` indexes keys, `stages.suffixes.work` sorts the contexts of a text.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from stages.artifacts.artifact import Artifact
from stages.artifacts.kinds import KINDS, PREVIOUS
from stages.artifacts.schema import Count, Expected, Figures, Positive, Schema, Share, between
from stages.artifacts.stage import Execution, Inputs, Stage
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.indexing.settings import leaves_out, settings_as_before, why_not
from stages.lineage.indexes import (
    COUNTS,
    described_keys,
    exact_index_before,
    index_before,
    inputs_of_some_rows,
)
from stages.registry import load
from stages.reporting import Reporter
from stages.search import EXACT
from stages.search.automatic import automatic_kind, check_keys, cost_in_words, resolve
from stages.search.config import IndexConfig
from stages.suffixes.indexing import TEXT, context_arrays, exact_inputs, resolve_exact

__all__ = ["BuildIndex", "IndexConfig"]

EXACT_WORK = "stages.suffixes.work:ExactIndexWork"
CAN_BECOME = "stages.indexing.change:can_become"
SOME_ROWS = "stages.lineage.held_rows:settings_of_some_rows"
"""Locations of work, and of checks of a kind of index, which need FAISS."""

Number = Annotated[str, Field(pattern="^[0-9]{1,18}$")]


class IndexFigures(Figures):
    """Metrics of an index."""

    rows: Positive
    held: Positive | None = None
    """Number of rows whose keys the index holds, if some were merged or left out."""
    dim: Annotated[int, Field(gt=0, lt=2**31)] | None = None
    lossless: bool | None = None
    documents: Count | None = None
    """Number of documents; only for an exact index, which has no keys."""
    bytes: Count
    recall_by_probe: dict[Number, dict[Number, Share]] | None = None

    @model_validator(mode="after")
    def _of_keys(self) -> Self:
        if self.documents is None and None in (self.dim, self.lossless):
            raise ValueError("dim and lossless are missing of an index of keys")
        return self


def _arrays(index: Artifact, name: str) -> Expected | None:
    """The expected arrays: contexts of an exact index, counts of an index that leaves rows out."""
    if name != COUNTS:
        return context_arrays(index, name)
    return Expected(
        (index.metrics["rows"],),
        ("int32",),
        between(0, index.metrics["rows"] + 1, "numbers of rows"),
    )


class BuildIndex(Stage[IndexConfig]):
    """Indexes the keys of a datastore or, with `--index exact`, the contexts of a text."""

    name = "build-index"
    kind = "index"
    Config = IndexConfig
    schema = Schema(IndexFigures, _arrays)

    def inputs(self, config: IndexConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        if config.index != EXACT:
            return vector_inputs(config, references, store)
        if references.get("merge") is not None:
            raise UsageError(f"--merge means nothing to an {EXACT!r} index: leave it out.")
        inputs = exact_inputs(config, references, store)
        previous = exact_index_before(inputs[TEXT], references.get("update"), store)
        return inputs if previous is None else Inputs({**inputs.artifacts, PREVIOUS: previous})

    def resolve(self, config: IndexConfig, inputs: Inputs, execution: Execution) -> IndexConfig:
        if config.index == EXACT:
            return resolve_exact(config)
        return resolve_vectors(config, inputs, execution.reporter)

    def work(self, config: IndexConfig) -> Any:
        """The work for keys, or that for exact matches."""
        return load(EXACT_WORK)() if config.index == EXACT else super().work(config)


def vector_inputs(config: IndexConfig, references: Mapping[str, Any], store: Store) -> Inputs:
    """Roles: `datastore`, and `previous` for an index that is changed."""
    if config.split is not None:
        raise UsageError("--split is of --index exact: a datastore knows the split that it is of.")
    if store.open(references["source"]).kind == "tokens":
        raise ArtifactError(
            f"{references['source']} is of kind tokens, whose contexts --index {EXACT} sorts; other kinds of index "
            f"are of keys: needed here: datastore (memlm {KINDS['datastore'].command})."
        )
    datastore = store.get(references["source"], "datastore")
    named = references.get("update")
    merge = references.get("merge")
    if merge is not None or config.keep < 1:
        return inputs_of_some_rows(config, datastore, named, merge, store)
    previous = index_before(datastore, config, named, store)
    if previous is None:
        return Inputs({"datastore": datastore})
    if not load(CAN_BECOME)(previous, datastore):
        if named is not None:
            raise UsageError(
                f"{previous.reference} cannot be changed in place ({why_not(previous, datastore)})."
            )
        return Inputs({"datastore": datastore})
    return Inputs({"datastore": datastore, PREVIOUS: previous})


def resolve_vectors(config: IndexConfig, inputs: Inputs, reporter: Reporter) -> IndexConfig:
    """The settings of an index of keys: its kind and sizes, by the number of keys."""
    keys = described_keys(inputs["datastore"])
    check_keys(keys.rows)
    if PREVIOUS in inputs:
        reporter.info(f"changing {inputs[PREVIOUS].reference} (to build anew: --update none)")
        return settings_as_before(config, inputs[PREVIOUS].config)
    resolved = resolve(config, keys)
    if leaves_out(config, inputs):
        resolved = load(SOME_ROWS)(resolved, keys)
    if config.index == "auto":
        kind, why = automatic_kind(keys, config.largest_gigabytes)
        reporter.info(f"index {kind}: {why}. It costs {cost_in_words(resolved, keys)}")
    return resolved
