"""Checks that stored neighbours fit a stage, and gives the command that finds fitting ones. Free of
torch.
"""

from collections.abc import Sequence
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.errors import ArtifactError, UsageError
from stages.examples import EXAMPLES, STREAMS
from stages.lineage.sources import own_splits
from stages.search.config import excluding_fewer


def require_neighbors(neighbors: Artifact, split: str, k: int, fewer: str) -> None:
    """Check that k stored neighbours are available for every token of a split.

    Args:
        fewer: the option that lowers k, up to its `=`, such as `train --set memory.k=`.
    Raises: ArtifactError, with the command to run, if the split or k neighbours are not stored, or
        may hold the answers.
    """
    stored = stored_splits(neighbors)
    if split not in stored:
        raise ArtifactError(
            f"{neighbors.reference} has no neighbours of split {split!r} (it has: "
            f"{', '.join(stored)}); find them: {_finding(neighbors, queries=','.join([*stored, split]))}"
        )
    if k > stored[split]:
        raise ArtifactError(
            f"{neighbors.reference} has {stored[split]} neighbours a token, fewer than k={k}; "
            f"read fewer: {fewer}{stored[split]}, or find more: {_finding(neighbors, k=k)}"
        )
    excludes = neighbors.config["exclude"] != "none"
    if not excludes and split in own_splits(
        neighbors.find("datastore"), neighbors.input("queries")
    ):
        raise ArtifactError(
            f"{neighbors.reference} lets tokens of {split!r} find their own rows, which hold the answers; "
            f"find others: {_finding(neighbors, exclude='self')}"
        )


def resolve_exclusion(
    exclude: str | None,
    tokens: Artifact,
    splits: Sequence[str],
    datastores: Sequence[tuple[Artifact, Artifact | None]],
    texts: Sequence[tuple[Artifact, set[str]]] = (),
) -> str | None:
    """The exclusion of rows that tokens must not find; None if no memory contains the scored or
    tuned split.

    Args:
        exclude: the requested exclusion. None: for pairs it is `document`, because every row of a
            sentence reveals the sentence.
        splits: the scored split, then the split for tuning, if any.
        datastores: each datastore that is read, with its stored neighbours, if these are used.
        texts: other artifacts that are read, each with the splits of `tokens` that it holds.
    Raises: UsageError if a split is in a memory and no exclusion is requested. Also if stored
        neighbours have another exclusion.
    """
    # every row of a sentence reveals the sentence, not only the token's own row
    if exclude is None and EXAMPLES.settings(tokens.metrics.get("examples", STREAMS)).source:
        exclude = "document"
    is_held = False
    for datastore, neighbors in datastores:
        splits_held = own_splits(datastore, tokens)
        if splits_held.isdisjoint(splits):
            continue
        is_held = True
        if exclude is None:
            split = next(split for split in splits if split in splits_held)
            raise UsageError(_leak(split, split == splits[0], datastore, neighbors))
        if neighbors is not None and neighbors.config["exclude"] != exclude:
            raise UsageError(
                f"{neighbors.reference} was found with --exclude {neighbors.config['exclude']}: ask for that, or find "
                f"others: {_finding(neighbors, exclude=exclude)}"
            )
    for artifact, splits_held in texts:
        if splits_held.isdisjoint(splits):
            continue
        is_held = True
        if exclude is None:
            split = next(split for split in splits if split in splits_held)
            raise UsageError(_leak(split, split == splits[0], artifact, None))
    return exclude if is_held else None


def _leak(split: str, scored: bool, datastore: Artifact, neighbors: Artifact | None) -> str:
    """Message why a split contained in a datastore is refused, and which option to give."""
    if neighbors is None:
        what = "which rows a token may not find: --exclude document, window:N or self (its own row alone)"
    else:
        what = (
            f"that {neighbors.reference} leaves some out: --exclude {neighbors.config['exclude']}"
        )
    other = "evaluate another split" if scored else "name another split with --tune-split"
    return (
        f"{datastore.reference} was made of {split!r}, the split that is {'scored' if scored else 'tuned on'}, so its "
        f"rows hold the answers: {other}, or say {what}."
    )


def require_some(neighbors: Artifact, split: str) -> None:
    """Check that a token of a split has a neighbour to learn from. Raises: ArtifactError, with the
    remedy.
    """
    if neighbors.metrics["splits"][split]["missing"] < 1:
        return
    exclude = neighbors.config["exclude"]
    raise ArtifactError(
        f"{neighbors.reference} has not one neighbour of a token of {split!r}: --exclude {exclude} leaves none of the "
        f"rows of {neighbors.find('datastore').reference}; "
        f"{excluding_fewer(exclude, _finding(neighbors, exclude='window:N'))}"
    )


def stored_splits(neighbors: Artifact) -> dict[str, int]:
    """The splits with stored neighbours, with the number per token."""
    return {split: int(neighbors.config["k"]) for split in sorted(neighbors.metrics["splits"])}


def _finding(neighbors: Artifact, **changes: Any) -> str:
    """The command that found these neighbours, with some options changed; None leaves an option
    out.
    """
    config = neighbors.config
    tokens = neighbors.input("queries")
    has_all_splits = set(config["queries"]) == set(tokens.metrics["splits"])
    are_training_tokens = tokens.matches(neighbors.find("encoder").manifest.inputs["tokens"])
    options = {
        "tokens": None if are_training_tokens else tokens.reference,
        "queries": None if has_all_splits else ",".join(config["queries"]),
        "k": config["k"],
        "exclude": None if config["exclude"] in ("self", "none") else config["exclude"],
        "exact": None if config["candidates"] is None else "",
    }

    # changed options come first
    words = []
    for name, value in (changes | {**options, **changes}).items():
        if value is not None:
            words += [f"--{name}", str(value)] if str(value) else [f"--{name}"]
    return neighbors.advise(
        "precompute-neighbors", neighbors.manifest.inputs["index"].reference, *words
    )


def require_queries(neighbors: Artifact, tokens: Artifact) -> None:
    record = neighbors.manifest.inputs["queries"]
    if not tokens.matches(record):
        raise ArtifactError(
            f"{neighbors.reference} holds neighbours of {record.reference}, not of {tokens.reference}; "
            f"find those: {_finding(neighbors, tokens=tokens.reference, queries=None)}"
        )
