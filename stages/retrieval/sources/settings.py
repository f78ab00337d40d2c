"""Settings of the sources, and those that follow from artifacts. Free of torch.

`local` and `long` read earlier positions of the window or of the split. `exact` and `exact-stream`
read tokens that followed the longest matches of a context. `external` reads the nearest entries of
a datastore, found through an index.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from stages.artifacts.artifact import Artifact
from stages.errors import ArtifactError, UsageError
from stages.examples import PAIRS as PAIRS_OF_SENTENCES
from stages.examples import STREAMS
from stages.lineage.corpus import require_key
from stages.lineage.indexes import EXACT, require_all
from stages.lineage.neighbors import require_neighbors
from stages.lineage.sources import PAIRS_SPLIT, own_splits
from stages.memory.hyperparameter import Choice, Count, Hyperparameter, doubling_cutoffs
from stages.methods.defaults import (
    default_key,
    default_similarity,
    is_own_datastore,
    stored_key,
    trained_temperature,
)
from stages.retrieval.grammar import shortest
from stages.retrieval.reading import Input, Past, Reading, SourceSettings


def resolve_reading(
    reading: Reading, read: Mapping[str, Artifact], splits: tuple[str, ...]
) -> Reading:
    """A reading with similarity, key and numbers of entries filled in from the artifacts.

    Args:
        read: what the evaluation reads, by role.
        splits: the scored split, then the tuning split, if any.
    Raises: UsageError without a datastore to read, or if the model has no such key; ArtifactError
        if the stored neighbours or keys are not those that the reading needs.
    """
    for settings in reading.source_settings:
        reading = settings.resolve(reading, read, splits)
    if reading.weight == "tune":
        reading = reading.with_tuned_weight()
    reading = _with_temperatures(_with_comparison(reading, read["model"]), read["model"])
    if reading.weight == "distance" and reading.comparison.similarity != "l2":
        raise UsageError(
            f"{reading.spelled}: {reading.weight_name}=distance is of keys that are compared by l2."
        )
    return reading


def _with_comparison(reading: Reading, model: Artifact) -> Reading:
    """Fill in the key and the similarity from the model, if no datastore decided them."""
    if "keys" not in reading.reads:
        return reading
    key, similarity = reading.comparison.key or default_key(model), reading.comparison.similarity
    if not all("datastore" in settings.reads for settings in reading.source_settings):
        require_key(model, key)
    return reading.changed(
        {"key": key, "similarity": similarity or default_similarity(model, "dot")}
    )


def _with_temperatures(reading: Reading, model: Artifact) -> Reading:
    """A reading of known similarity with the grid of τ spelled out, unless a sample determines it."""
    tried = reading.reader_settings.temperatures
    if not tried or (reading.comparison.temperature, reading.comparison.similarity) != (
        "tune",
        "scaled-dot",
    ):
        return reading
    unit = trained_temperature(model)
    return reading.changed({"temperature": tuple(float(f"{t * unit:.10g}") for t in tried)})


SIZE = Hyperparameter(
    "cache size",
    axis="positions back",
    grid=(50, 100, 200, 500, 1000, 2000, 5000, 10_000),
    example="2000",
    untuned=(2048,),
)
"""The grid is that of Grave et al. 2017."""


class LocalSettings(SourceSettings):
    """No keys: the window says how much is read."""

    word: ClassVar[str] = "window"
    means: ClassVar[str] = "the positions before in the same window"
    amount: ClassVar[str] = "window"
    reported: ClassVar[Mapping[str, Hyperparameter]] = {
        "window": Hyperparameter("window", axis="tokens of a window")
    }
    reads: ClassVar[frozenset[Input]] = frozenset({"keys", "windows"})

    def past(self, reset: str) -> Past | None:
        return "document" if reset == "document" else "stream"

    def resolve(
        self, reading: Reading, read: Mapping[str, Artifact], splits: tuple[str, ...]
    ) -> Reading:
        return reading


class LongSettings(SourceSettings):
    """How far back, and whether across documents."""

    word: ClassVar[str] = "cache"
    means: ClassVar[str] = "the cache, the last positions read"
    amount: ClassVar[str] = "size"
    size: Annotated[Choice[Count] | None, SIZE] = None
    """Positions back from the one that reads."""
    scope: Literal["stream", "document"] = "stream"
    """Whether the past ends where the document of the position begins."""

    def past(self, reset: str) -> Past | None:
        return self.scope

    def resolve(
        self, reading: Reading, read: Mapping[str, Artifact], splits: tuple[str, ...]
    ) -> Reading:
        longest = max(read["tokens"].metrics["splits"][split]["tokens"] for split in splits)
        sizes = SIZE.grid if self.size == "tune" else self.size or ()
        return reading.changed({"size": tuple(sorted({min(int(size), longest) for size in sizes}))})


MATCHES = Hyperparameter("matches read", axis="matches", grid=(1, 4, 16, 64, 256))
DEFAULT_MATCHES = 64


class ExactSettings(SourceSettings):
    """How many matches, in the text of an index."""

    word: ClassVar[str] = "matches"
    means: ClassVar[str] = (
        "what followed the longest matches of the context in the text of an index"
    )
    amount: ClassVar[str] = "matches"
    reads: ClassVar[frozenset[Input]] = frozenset({"text"})
    matches: Annotated[Choice[Count] | None, MATCHES] = None
    """Matches read, the longest first; None: 64."""

    def resolve(
        self, reading: Reading, read: Mapping[str, Artifact], splits: tuple[str, ...]
    ) -> Reading:
        for name in ("key", "similarity"):
            if getattr(reading.comparison, name) is not None and "keys" not in reading.reads:
                raise UsageError(
                    f"{reading.spelled}: exact matches compare tokens, no keys: leave {name} out."
                )
        numbers = MATCHES.grid if self.matches == "tune" else self.matches or (DEFAULT_MATCHES,)
        texts = [read["tokens"].metrics["splits"][split]["tokens"] for split in splits]
        most = max(*texts, read[EXACT].metrics["rows"] if EXACT in read else 0)  # no text has more
        return reading.changed(
            {"matches": tuple(sorted({min(int(number), most) for number in numbers}))}
        )


class ExactStreamSettings(ExactSettings):
    """The same in what was read so far: a cache of matches of all lengths."""

    word: ClassVar[str] = "matches in the past"
    means: ClassVar[str] = (
        "what followed the longest matches of the context in the last positions read"
    )
    reads: ClassVar[frozenset[Input]] = frozenset()
    size: Annotated[Choice[Count] | None, replace(SIZE, example="")] = None
    """Positions back from the one that reads; None: all."""

    def past(self, reset: str) -> Past | None:
        return "stream"

    def resolve(
        self, reading: Reading, read: Mapping[str, Artifact], splits: tuple[str, ...]
    ) -> Reading:
        longest = max(read["tokens"].metrics["splits"][split]["tokens"] for split in splits)
        asked = SIZE.grid if self.size == "tune" else self.size or (longest,)
        sizes = tuple(sorted({min(int(size), longest) for size in asked}))
        reading = super().resolve(reading, read, splits)
        if len(sizes) > 1 and (
            len(reading.value("matches")) > 1 or len(reading.sources) > 1 or reading.per_context
        ):
            raise UsageError(
                f"{reading.spelled}: size is tuned of exact-stream alone, at one number of matches and one "
                f"{reading.weight_name} for all; give one size, or --memory exact-stream:size=tune,lambda=tune."
            )
        return reading.changed({"size": sizes})


MOST_NEIGHBORS = 1024
"""Neighbours read unless set otherwise."""
FEWER = "--memory external:k="
"""The option that has fewer read."""
SIMILARITIES = {"l2": "l2", "ip": "dot"}
"""Similarity of a search, by its metric."""


class ExternalSettings(SourceSettings):
    """How many neighbours, and which distances."""

    word: ClassVar[str] = "datastore"
    means: ClassVar[str] = "the k nearest entries of the datastore"
    amount: ClassVar[str] = "k"
    reported_as: ClassVar[Mapping[str, str]] = {"exact": "exact_distances"}
    reads: ClassVar[frozenset[Input]] = frozenset({"keys", "datastore"})
    k: Annotated[Choice[Count] | None, Hyperparameter("k", "neighbours read", "neighbours, k")] = (
        None
    )
    """Neighbours read; None: 1,024 or as many as there are."""
    exact: bool = False
    """Whether distances are recomputed from the stored keys."""
    searched: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the tuning split's tokens that are searched for, those where the memory is expected
    to gain most.
    """
    pointers: Count | None = None
    """Fewest rows behind the last neighbours that are read in place of a search; None: every token
    is searched for.
    """

    def resolve(
        self, reading: Reading, read: Mapping[str, Artifact], splits: tuple[str, ...]
    ) -> Reading:
        if "datastore" not in read:
            raise UsageError(_without_datastore(reading, read["model"]))
        datastore = read["datastore"]
        key = reading.comparison.key
        if key not in (None, datastore.config["key"]):
            raise ArtifactError(
                f"{datastore.reference} has keys {datastore.config['key']!r}, not {key!r}; build another: "
                + datastore.advise("build-datastore", "--key", str(key), read["encoder"].reference)
            )
        if self.pointers is not None and (
            "neighbors" in read or "examples" in read["tokens"].metrics
        ):
            raise UsageError(
                f"{reading.spelled}: pointers save searches of an index in running text: leave them out."
            )
        _require_all_rows(reading, read, splits)
        numbers = _numbers(self.k, read, splits)
        if self.pointers is not None and self.pointers > max(numbers):
            raise UsageError(
                f"{reading.spelled}: no token has {self.pointers} rows to follow where {max(numbers)} neighbours are "
                f"read, so every token would be searched for: give at most pointers={max(numbers)}."
            )
        compared = default_similarity(read["encoder"], SIMILARITIES[read["index"].config["metric"]])
        similarity = reading.comparison.similarity or compared
        reading = reading.changed(
            {"key": datastore.config["key"], "similarity": similarity, "k": numbers}
        )
        if len(reading.sources) > 1:
            _require_one_stream(reading, read, splits)
        return reading


def _require_all_rows(
    reading: Reading, read: Mapping[str, Artifact], splits: tuple[str, ...]
) -> None:
    """Refuse readings that an index with merged rows cannot serve: pointers, and exclusion of the
    token's own row.
    """
    if reading.value("pointers") is not None:
        require_all(read["index"], f"{reading.spelled}, whose pointers are to the row behind,")
    if not own_splits(read["datastore"], read["tokens"]).isdisjoint(splits):
        require_all(read["index"], "a split whose own rows are left out")


def _without_datastore(reading: Reading, model: Artifact) -> str:
    made = (
        ("build-datastore", model.reference),
        ("build-index",),
        ("evaluate", "--memory", shortest(reading)),
    )
    return (
        f"{shortest(reading)} reads a datastore: evaluate an index or neighbors ("
        f"{' | '.join(model.advise(*words) for words in made)}), or name one with --index or --neighbors."
    )


def _require_one_stream(
    reading: Reading, read: Mapping[str, Artifact], splits: tuple[str, ...]
) -> None:
    """Refuse unions whose parts have different keys, or would hold the same positions twice.

    Raises: ArtifactError for the datastore of another model; UsageError for the datastore's own
    split.
    """
    datastore, model = read["datastore"], read["model"]
    if not is_own_datastore(read):
        raise ArtifactError(
            f"{shortest(reading)} compares recent positions with the keys of {datastore.reference}, which "
            f"{read['encoder'].reference} made, not {model.reference}; read external by itself on top of the "
            f"others, or build another datastore: {model.advise('build-datastore', model.reference)}"
        )
    own = own_splits(datastore, read["tokens"])
    twice = next((split for split in splits if split in own), None)
    if twice is not None:
        instead = (
            "evaluate another split"
            if twice == splits[0]
            else "name another split with --tune-split"
        )
        raise UsageError(
            f"{shortest(reading)} would read recent positions of {twice!r} twice: they are in {datastore.reference} "
            f"too; {instead}, or read external by itself on top of the others."
        )


def _numbers(asked: Any, read: Mapping[str, Artifact], splits: tuple[str, ...]) -> tuple[int, ...]:
    """Numbers of neighbours to read, each at most the number of rows."""
    rows = int(read["datastore"].metrics["rows"])
    most = min(MOST_NEIGHBORS, rows)
    if "neighbors" in read:
        for split in splits:
            require_neighbors(
                read["neighbors"], split, max(asked) if isinstance(asked, tuple) else 1, FEWER
            )
        most = min(most, int(read["neighbors"].config["k"]))
    if asked == "tune":
        return doubling_cutoffs(most)
    return (most,) if asked is None else tuple(sorted({min(k, rows) for k in asked}))


MOST_OF_PAIRS = 64
"""Neighbours that `tune` reads at most: a few pairs have few tokens."""
DEFAULT_OF_PAIRS = 16


class SimilarPairsSettings(SourceSettings):
    """How many pairs are found for a sentence, and how many of their tokens are read."""

    word: ClassVar[str] = "similar pairs"
    means: ClassVar[str] = "the k nearest tokens of the pairs whose sources BM25 finds"
    amount: ClassVar[str] = "k"
    reads: ClassVar[frozenset[Input]] = frozenset({"keys", "pairs"})
    k: Annotated[Choice[Count] | None, Hyperparameter("k", "neighbours read", "neighbours, k")] = (
        None
    )
    """Neighbours read; None: 16."""
    pairs: Count = 16
    """Pairs of train found for a sentence."""

    def resolve(
        self, reading: "Reading", read: Mapping[str, Artifact], splits: tuple[str, ...]
    ) -> "Reading":
        tokens = read["tokens"]
        if tokens.metrics.get("examples", STREAMS) != PAIRS_OF_SENTENCES:
            raise UsageError(f"{reading.spelled}: {tokens.reference} holds no pairs of sentences.")
        found = tokens.metrics["splits"].get(PAIRS_SPLIT, {})
        if not found.get("tokens"):
            raise ArtifactError(
                f"{tokens.reference} has no split {PAIRS_SPLIT!r} whose pairs could be found."
            )
        numbers = (
            doubling_cutoffs(MOST_OF_PAIRS) if self.k == "tune" else self.k or (DEFAULT_OF_PAIRS,)
        )
        return reading.changed(
            {
                "key": reading.comparison.key or stored_key(read["model"]),
                "similarity": reading.comparison.similarity
                or default_similarity(read["model"], "l2"),
                # no more than there are
                "k": tuple(sorted({min(int(number), found["tokens"]) for number in numbers})),
                "pairs": min(self.pairs, found["documents"]),
            }
        )
