"""Artifacts that readings read, found once for every command that reads memories. Free of torch."""

from collections.abc import Mapping, Sequence
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.lineage.corpus import require_split
from stages.lineage.evaluation import artifacts_read, language_model, memory_source
from stages.lineage.neighbors import resolve_exclusion
from stages.memory.hyperparameter import ReadingOptions
from stages.retrieval.book_input import BOOK
from stages.retrieval.memory_input import HeldText, InputSearch, MemoryInput
from stages.retrieval.reading import Reading
from stages.retrieval.registries import SOURCES


def memory_inputs() -> dict[str, MemoryInput]:
    """Inputs that registered sources declare, and the text of an open book, by role."""
    inputs: dict[str, MemoryInput] = {BOOK.role: BOOK}
    for name in SOURCES.names():
        inputs |= {memory.role: memory for memory in SOURCES.settings(name).inputs}
    return inputs


def inputs_in(read: Mapping[str, Any]) -> list[tuple[MemoryInput, Any]]:
    """The inputs of sources among artifacts by role, each with its artifact."""
    return [(memory, read[role]) for role, memory in memory_inputs().items() if role in read]


def sources_of_inputs(read: Mapping[str, Artifact]) -> list[str]:
    """Names of the sources that have inputs among artifacts by role."""
    return [
        name
        for name in SOURCES.names()
        if any(memory.role in read for memory in SOURCES.settings(name).inputs)
    ]


def held_text(read: Mapping[str, Artifact], role: str) -> HeldText | None:
    """The text whose tokens are the rows of a memory; None: rows are those of a datastore."""
    memory = memory_inputs().get(role)
    return None if memory is None else memory.text(read[role])


def neighbor_values(read: Mapping[str, Artifact]) -> Any:
    """The tokens of the rows that are found as neighbours, an array [N]."""
    if "datastore" in read:
        return read["datastore"].zarr("datastore.zarr")["values"]
    text = neighbor_text(read)
    assert text is not None, "neighbours are read"
    return text.tokens.zarr("tokens.zarr")[f"{text.split}/ids"]


def neighbor_text(read: Mapping[str, Artifact]) -> HeldText | None:
    """The text whose tokens are found as neighbours; None: those of a datastore are."""
    for name in SOURCES.names():
        settings = SOURCES.settings(name)
        for memory in settings.inputs:
            if settings.finds_neighbors and memory.role in read:
                text: HeldText | None = memory.text(read[memory.role])
                return text
    return None


Declaration = tuple[MemoryInput, ReadingOptions]
"""An input of a source, and the settings of the source, which say what fits."""


def find_artifacts(
    source: Artifact,
    readings: Sequence[Reading] | None,
    references: Mapping[str, Any],
    store: Store,
    *,
    split: str | None,
    report: Artifact | None = None,
    roles: Sequence[str] = (),
) -> dict[str, Artifact]:
    """All artifacts that readings of a model read, by role.

    Args:
        source: model, index or neighbors, as named by the command.
        readings: None: the default readings, which read the datastore of `source`, if it has one.
        references: other references of the command, by role.
        split: the split that is read; None: a text from outside the corpus, whose neighbours must
            be searched for.
        report: report whose readings are read again; what it read is read, where the command names
            nothing else.
        roles: inputs that are needed even if no reading asks for them.
    Raises: ArtifactError or UsageError, with the remedy, if something is missing or does not fit.
    """
    model = language_model(source)
    declared = _declarations(readings or (), roles)
    inputs = [declarations[0][0] for declarations in declared.values()]
    references, claimed = _claim_index(references, store, inputs)
    from_tokens = any(memory.from_tokens for memory in inputs)
    if from_tokens and report is not None and references.get("tokens") is None:
        references["tokens"] = report.input("tokens").reference

    reads_datastore = None
    if readings is not None:
        reads_datastore = any(reading.reads_datastore for reading in readings)
    memory = memory_source(source, references, store, reads_datastore)
    if memory is None and reads_datastore:
        memory = _recorded(report, "neighbors") or _recorded(report, "index")
    # Neighbours are stored only for splits; for any other text they are searched for.
    if split is None and memory is not None and memory.kind == "neighbors":
        memory = memory.input("index")

    read = artifacts_read(model, memory, references, store)
    if split is not None:
        require_split(read["tokens"], split)
    for role, declarations in declared.items():
        search = InputSearch(
            store, model, read["tokens"], claimed.get(role), _recorded(report, role)
        )
        artifacts = [memory.find(search, settings) for memory, settings in declarations]
        _require_one(role, artifacts)
        if artifacts[0] is not None:
            read[role] = artifacts[0]
    return read


def _declarations(
    readings: Sequence[Reading], roles: Sequence[str]
) -> dict[str, list[Declaration]]:
    """The inputs of readings, by role, with the settings of each source that declares them.

    Args:
        roles: inputs that are needed even if no reading asks for them.
    """
    declared: dict[str, list[Declaration]] = {}
    for reading in readings:
        for settings in reading.source_settings:
            for memory in settings.inputs:
                declared.setdefault(memory.role, []).append((memory, settings))
    for role in roles:
        declared.setdefault(role, [(memory_inputs()[role], ReadingOptions())])
    return declared


def _recorded(report: Artifact | None, role: str) -> Artifact | None:
    """The artifact of a role that a report read; None if it read none."""
    if report is None or role not in report.manifest.inputs:
        return None
    return report.input(role)


def _require_one(role: str, artifacts: Sequence[Artifact | None]) -> None:
    """Refuse several artifacts in one role; None: a reading needs none.

    Raises: UsageError if readings read different artifacts in one role.
    """
    references = ["none" if artifact is None else artifact.reference for artifact in artifacts]
    for reference in references[1:]:
        if reference != references[0]:
            raise UsageError(
                f"--memory: two readings read {references[0]} and {reference} as {role}; "
                "one is read at a time."
            )


def resolve_memory_exclusion(
    exclude: str | None,
    read: Mapping[str, Artifact],
    splits: Sequence[str],
    datastores: Sequence[tuple[Artifact, Artifact | None]],
) -> str | None:
    """The exclusion of rows that tokens must not find in any memory; see `resolve_exclusion`.

    Raises: UsageError if a memory holds the answers, and no exclusion, or none that it can keep, is
        asked for.
    """
    tokens = read["tokens"]
    inputs = inputs_in(read)
    texts = [(artifact, memory.own_splits(artifact, tokens)) for memory, artifact in inputs]
    resolved = resolve_exclusion(exclude, tokens, splits, datastores, texts)
    for memory, _ in inputs:
        memory.check_exclusion(resolved, splits)
    return resolved


def _claim_index(
    references: Mapping[str, Any], store: Store, inputs: Sequence[MemoryInput]
) -> tuple[dict[str, Any], dict[str, Artifact]]:
    """References without an index that an input claims; and that index, by the input's role."""
    remaining = dict(references)
    if references.get("index") is None or not inputs:
        return remaining, {}
    index = store.get(references["index"], "index")
    claimed = {memory.role: index for memory in inputs if memory.claims(index)}
    if claimed:
        del remaining["index"]
    return remaining, claimed
