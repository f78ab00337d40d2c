"""The book of an evaluation, and checks that its model and windows can read it. Free of torch."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.examples.cutting import WindowSettings
from stages.lineage.corpus import require_same_tokenizer, require_split
from stages.lineage.sources import is_updated, sources_of
from stages.models.config import model_of
from stages.open_book.settings import OpenBook
from stages.retrieval.book_input import BOOK, SPLIT
from stages.retrieval.reading import Reading

if TYPE_CHECKING:
    from stages.models.config import BackboneConfig


def find_book(reference: str, model: Artifact, store: Store) -> Artifact:
    """The tokens of a book. Raises: ArtifactError if their tokenizer is another, or without train."""
    book = store.get(reference, "tokens")
    require_same_tokenizer(model.input("tokens"), book, model)
    require_split(book, SPLIT)
    return book


def resolve_book(
    settings: OpenBook | None,
    read: Mapping[str, Artifact],
    windows: WindowSettings,
    readings: Sequence[Reading],
) -> OpenBook | None:
    """The settings of the book that an evaluation reads; None: it reads none.

    Args:
        read: what the evaluation reads, by role.
        windows: windows in which the model reads.
    Raises: UsageError for settings without a book, for models that cannot read one, and for windows
        without room.
    """
    if BOOK.role not in read:
        if settings is None:
            return None
        raise UsageError("open_book is of a book: name its tokens, --open-book TOKENS.")
    settings = settings or OpenBook()
    _require_model(read["model"])
    _require_room(settings, read["model"], windows)
    for reading in readings:
        if reading.reads_windows:
            raise UsageError(
                f"--memory {reading.spelled} reads its window, which an open book shares: take long "
                "in place of local, or leave --open-book out."
            )
    if settings.by == "keys":
        _require_index(read)
    return settings


def _require_model(artifact: Artifact) -> None:
    """Refuse a model that cannot read a passage before its context.

    Raises: UsageError with the reason.
    """
    model = model_of(artifact)
    reasons = {
        "reads every sentence with its source": model.reads.source,
        "makes keys, and predicts no token": model.pools,
        "learned with a gate of neighbours": model.reads_neighbors,
        "carries a state, in which a passage would stay": model.carries_state,
        "reads places in documents, and a passage has none": model.reads.documents,
    }
    for reason, holds in reasons.items():
        if holds:
            raise UsageError(
                f"{artifact.reference} ({model.backbone}) {reason}: an open book is of models that "
                "read windows of text. Leave --open-book out, or take a transformer."
            )


def _require_room(settings: OpenBook, artifact: Artifact, windows: WindowSettings) -> None:
    """Refuse passages that leave too little of the window.

    Raises: UsageError unless the context keeps half of the window, and room for a stride.
    """
    context = windows.context
    room = settings.room
    if 2 * room > context:
        max_tokens = context // 2 // settings.passages
        fewer = f"--set open_book.passage={max_tokens}" if max_tokens else "--open-book-passages 1"
        longest = model_of(artifact).reads.longest_context
        wider = ""
        if longest is None or longest >= 2 * room:
            wider = f" or a window of {2 * room:,} (--context {2 * room})"
        raise UsageError(
            f"{settings.passages} x {settings.passage} tokens of passages are more than half of the "
            f"window, {context:,}: give shorter ones ({fewer}){wider}."
        )
    if settings.stride > context - room:
        raise UsageError(
            f"open_book.stride {settings.stride} is more than the {context - room:,} tokens that the "
            f"passages leave of the window: give at most that (--set open_book.stride={context - room})."
        )


def _require_index(read: Mapping[str, Artifact]) -> None:
    """Refuse `by=keys` without an index of the book.

    Raises: UsageError unless an index of the book's text is read, with keys of windows.
    """
    if "datastore" not in read:
        raise UsageError(
            "open_book.by=keys finds passages by hits of an index, and no memory reads one: name it "
            "(memlm evaluate INDEX --memory knn-lm), or leave by out: BM25 needs none."
        )
    datastore = read["datastore"]
    book = read[BOOK.role]
    is_whole = not is_updated(datastore)
    if not is_whole or not all(source.is_split(book, SPLIT) for source in sources_of(datastore)):
        raise UsageError(
            f"open_book.by=keys: the rows of {datastore.reference} are not the {SPLIT} of "
            f"{book.reference}, whose passages they find: build its index "
            f"({book.advise('build-datastore', read['model'].reference, '--tokens', book.reference)}"
            ", memlm build-index), or leave by out."
        )
    encoder: BackboneConfig = model_of(read["encoder"])
    if encoder.carries_state:
        raise UsageError(
            f"open_book.by=keys: {read['encoder'].reference} makes keys as it reads a stream, and "
            "queries are short: take an index of a model of windows, or leave by out."
        )
