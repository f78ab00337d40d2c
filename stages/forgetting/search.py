"""Searches a store for the artifacts that hold a document."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.errors import ArtifactError
from stages.forgetting.drafts import drafts_that_hold
from stages.forgetting.question import DocumentQuestion, Passage, Tokenizer, windows_by_tokenizer
from stages.forgetting.rules import Ledger, holdings, learned_vocabularies
from stages.forgetting.spans import Holding, RowSpan, in_part
from stages.forgetting.texts import StoredText, stored_texts
from stages.reporting import Reporter

SHOWN = 3
"""Names that are shown for one that is not known."""


@dataclass(frozen=True)
class Answer:
    """Everything that a search found."""

    holdings: tuple[Holding, ...]
    """Ways in which artifacts hold the documents, inputs before what is made of them."""
    unread: dict[str, str]
    """Reason why an artifact could not be looked at, by its reference."""
    alike: tuple[str, ...]
    """Names of other documents that resemble a name that no document has."""
    tokens: int
    """Number of tokens that were searched for copies."""
    documents: tuple[Passage, ...]
    """The tokens of the documents that were found by their names."""


def find_holders(store: Store, question: DocumentQuestion, reporter: Reporter) -> Answer:
    """Find the artifacts of a store that hold a document, and its copies in other documents.

    Damaged artifacts, and those whose inputs are gone, are named in the answer: they may hold it,
    too.
    """
    return _Search(store, question, reporter).answer()


class _Search:
    """One search: texts with their documents first, then everything made of them."""

    def __init__(self, store: Store, question: DocumentQuestion, reporter: Reporter) -> None:
        self._store = store
        self._question = question
        self._reporter = reporter
        self._artifacts = store.artifacts()
        # Why an artifact could not be looked at, by reference; each step may add some.
        self._unread: dict[str, str] = {}
        self._texts = list(self._readable_texts())
        self._tokenizers = {text.tokenizer: Tokenizer(text.tokens) for text in self._texts}
        # Numbers of the documents that are looked for, by text.
        self._documents = {text: self._documents_of(text) for text in self._texts}

    def answer(self) -> Answer:
        """Search the texts for documents and copies, then what was made of them, then drafts."""
        self._note_unreadable()
        passages = tuple(self._passages())
        spans = self._stored_spans(passages)
        ledger = self._ledger(spans)

        holdings: list[Holding] = []
        for artifact in self._artifacts:
            holdings += ledger.of(artifact)
        holders = {holding.reference for holding in holdings}
        holdings += drafts_that_hold(self._store, self._question, holders)

        searches_copies = bool(passages) and self._question.copied > 0
        return Answer(
            holdings=tuple(holdings),
            unread=self._unread,
            alike=self._alike(),
            tokens=self._tokens() if searches_copies else 0,
            documents=passages,
        )

    def _readable_texts(self) -> Iterator[StoredText]:
        """All texts whose files are as they were made."""
        for artifact in self._artifacts:
            texts = stored_texts(artifact)
            if not texts:
                continue
            try:
                self._store.check_files(artifact)
                for text in texts:
                    _ = text.tokens
                yield from texts
            except ArtifactError as error:
                self._unread[artifact.reference] = str(error)

    def _note_unreadable(self) -> None:
        """Note the artifacts whose manifests cannot be read."""
        readable = {artifact.reference for artifact in self._artifacts}
        for reference in self._store.references():
            if reference in readable:
                continue
            try:
                self._store.open(reference)
            except ArtifactError as error:
                self._unread[reference] = str(error)

    def _documents_of(self, text: StoredText) -> list[int]:
        """Numbers of the documents of a text that the question names, rising."""
        numbers = set(text.documents_called(self._question.names))
        spans = self._question.spans.get(text.artifact.reference, ())
        for span in in_part(spans, text.part):
            numbers.update(text.documents_between(span.start, span.stop))
        return sorted(numbers)

    def _passages(self) -> Iterator[Passage]:
        """The tokens of named documents, or of the text."""
        for text, numbers in self._documents.items():
            tokenizer = self._tokenizers[text.tokenizer]
            eos = text.tokens.metrics["eos_id"]
            for number in numbers:
                ids = text.document(number)
                # A copy within another document does not end there.
                if len(ids) and ids[-1] == eos:
                    ids = ids[:-1]
                yield Passage(tokenizer, ids)
        if self._question.text is not None:
            for tokenizer in self._tokenizers.values():
                yield tokenizer.cut(self._question.text)

    def _stored_spans(self, passages: Sequence[Passage]) -> dict[str, list[RowSpan]]:
        """Spans of documents and of copies in all texts, by reference of the artifact."""
        windows = windows_by_tokenizer(passages, self._tokenizers.values(), self._question.copied)
        # A text that is looked for has no original in the store, so no span of it is a copy.
        are_copies = self._question.text is None
        num_searched = 0
        num_tokens = self._tokens()
        spans_by_artifact: dict[str, list[RowSpan]] = {}
        for text in self._texts:
            spans = spans_by_artifact.setdefault(text.artifact.reference, [])
            documents = self._documents[text]
            spans += text.spans_of(documents)
            for span in text.shared(windows[text.tokenizer], documents):
                spans.append(span._replace(is_copy=are_copies))

            num_searched += text.length
            self._reporter.progress(num_searched, num_tokens, "tokens")
        return spans_by_artifact

    def _tokens(self) -> int:
        return sum(text.length for text in self._texts)

    def _ledger(self, spans: Mapping[str, Sequence[RowSpan]]) -> Ledger:
        """Holdings of all artifacts, from the spans in texts; each artifact after its inputs."""
        by_reference = {artifact.reference: artifact for artifact in self._artifacts}
        ledger = Ledger(by_reference, learned_vocabularies(self._artifacts, spans))
        for reference in _inputs_first(self._artifacts):
            artifact = by_reference[reference]
            try:
                _require_inputs(artifact, ledger)
                stored = spans.get(reference, ())
                ledger.holdings[reference] = holdings(artifact, stored, ledger)
            except ArtifactError as error:
                self._unread[reference] = str(error)
        return ledger

    def _alike(self) -> tuple[str, ...]:
        """Names that resemble those that no document has."""
        unknown = set(self._question.names)
        for text, numbers in self._documents.items():
            unknown -= {text.names.of(number) for number in numbers}
        if not unknown:
            return ()

        names: set[str] = set()
        for text in self._texts:
            names.update(run.name for run in text.runs if run.name)

        # Keys of a dictionary are distinct and keep their order.
        similar: dict[str, None] = {}
        for name in sorted(unknown):
            similar |= dict.fromkeys(get_close_matches(name, names, SHOWN))
        return tuple(similar)[:SHOWN]


def _inputs_first(artifacts: Sequence[Artifact]) -> list[str]:
    """References of artifacts, each after its inputs. Raises: ArtifactError for a cycle."""
    references = {artifact.reference for artifact in artifacts}
    inputs = {artifact.reference: artifact.parents & references for artifact in artifacts}
    try:
        return list(TopologicalSorter(inputs).static_order())
    except CycleError as error:
        raise ArtifactError(f"The inputs of {error.args[1][0]} form a cycle.") from None


def _require_inputs(artifact: Artifact, ledger: Ledger) -> None:
    """Refuse an artifact that cannot be judged.

    Raises: ArtifactError if an input is gone, so that nobody knows whether it held a document.
    """
    record = ledger.missing(artifact)
    if record is not None:
        raise ArtifactError(
            f"{artifact.reference} was made from {record.reference}, which is not in the store as it "
            "was then: nobody can say what it holds. Remove it: "
            + artifact.advise("artifacts", "rm", artifact.reference)
        )
