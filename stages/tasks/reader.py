"""Answers of a model with its weights after any task of its stream, with and without memory."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from safetensors.numpy import load_file
from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.errors import ArtifactError, UsageError
from stages.examples.cutting import WindowSettings
from stages.examples.documents import Documents, LabelledBatch, documents_of
from stages.examples.examples import BATCH_TOKENS, Corpus
from stages.methods import METHODS
from stages.methods.config import MEMORY_FILE, MethodSettings, after_file
from stages.methods.stream.elle import prompted
from stages.methods.stream.spelled import Spelling
from stages.methods.stream.spelled import answers as written_answers
from stages.models.config import model_of
from stages.models.head_settings import LanguageSettings, Pool
from stages.models.heads import best_spans, pooled
from stages.models.language_model import LanguageModel
from stages.models.weights import load_model, start_from
from stages.tasks import READINGS
from stages.tasks.readings import Reading

DocumentPool = Literal["encoder"] | Pool
"""Pooling of a document: that of a sentence encoder's own library, or one of hidden states."""
Candidates = Sequence[Sequence[int] | None]
"""Candidate labels of each example, by number; None for an example: all labels."""


def best_labels(
    probabilities: Float[np.ndarray, "n Y"], among: Candidates | None = None
) -> list[int]:
    """The most probable label of each example; ties go to the smaller number.

    >>> best_labels(np.array([[0.1, 0.3, 0.6], [0.1, 0.3, 0.6]]), [[1, 0], None])
    [1, 2]
    """
    labels = np.arange(probabilities.shape[1])
    allowed = [
        labels if labels_allowed is None else np.sort(labels_allowed)
        for labels_allowed in among or [None] * len(probabilities)
    ]
    return [
        int(labels_allowed[row[labels_allowed].argmax()])
        for row, labels_allowed in zip(probabilities, allowed, strict=True)
    ]


@dataclass(frozen=True)
class Keys:
    """The network that makes keys, and the keys of all documents of the training split, float32 [D,
    d].
    """

    model: LanguageModel
    length: int
    """Maximum tokens of a document that the network reads."""
    pool: DocumentPool
    stored: np.ndarray
    normalize: bool = False
    """Whether keys are scaled to length 1."""

    _made: dict[tuple[int, ...], np.ndarray] = field(default_factory=dict, compare=False)
    """Keys of other documents by their numbers: each row of a matrix asks for those of its tests."""

    def of(self, examples: Documents) -> np.ndarray:
        """Keys of other documents, float32 [n, d]."""
        # A split is known by its tokens. The documents are those of one range, so that their keys
        # do not depend on what else was read before.
        documents = (id(examples.ids), *examples.chosen.tolist())
        if documents not in self._made:
            cutting = examples.cutting._replace(context=self.length, stride=self.length)
            cut = replace(examples, cutting=cutting)
            self._made[documents] = document_keys(
                self.model, cut, np.arange(cut.count), self.pool, self.normalize
            )
        return self._made[documents]


@dataclass(frozen=True)
class Memory:
    """Documents that a model has written to memory; weights after a task see only those written
    until then.
    """

    split: Documents
    """All documents of the training split."""
    rows: np.ndarray
    """Documents in memory, int64 [M], in the order of writing."""
    tasks: np.ndarray
    """Place of each one's task in the stream, int64 [M]."""

    def visible(self, after: int) -> np.ndarray:
        """Rows that were written by the end of the task `after`, counted from 1."""
        return self.rows[self.tasks < after]


class NotFinite(Exception):
    """Raised if scores of labels are not finite."""


class StreamReader:
    """Answers of a model; weights are loaded when the place in the stream changes."""

    def __init__(
        self,
        model: Artifact,
        device: torch.device,
        memory: Memory,
        keys: Keys | None = None,
        decode: Callable[[list[int]], str] | None = None,
    ) -> None:
        """`decode`: turns tokens into text, for answers in words."""
        self._artifact = model
        self._decode = decode
        self.memory = memory
        self.keys = keys
        self.place = -1
        self.model: LanguageModel = load_model(model.path, device)

    def go_to(self, place: int) -> None:
        """Load the weights after the task at a place, counted from 1; 0: the weights before the
        first.
        """
        if self._artifact.config["order"] is not None and place != self.place:
            recorded = self._artifact.config
            memory = {**(recorded["memory"] or {}), "method": recorded["method"]}
            settings: MethodSettings = METHODS.settings(recorded["method"]).model_validate(memory)
            config = settings.task_model(model_of(self._artifact), max(0, place - 1))
            if config != self.model.config:  # the model grew
                self.model = LanguageModel(config).to(self.device).eval()
            start_from(self.model, self._artifact.file(after_file(place)))
        self.place = place

    def nats(self, examples: Documents, which: np.ndarray) -> tuple[float, int]:
        """Sum of -log p over the tokens of some documents [n], in nats, and the number of these
        tokens.

        Raises: ArtifactError if a probability is not a number.
        """
        nats = 0.0
        tokens = 0
        head = self.model.config.head
        assert head is not None, "a model of text has one, too"
        for batch in document_batches(examples.of(examples.chosen[which]), self.device):
            if self._artifact.config["memory"].get("prompt", True):
                batch = prompted(batch, head, examples.task_numbers[batch.documents])
            with torch.no_grad():
                log_p, _ = self.model.log_prob(
                    batch.rows(self.model.read(batch).hidden), batch.rows(batch.targets)
                )
            nats = nats - float(log_p.double().sum())
            tokens = tokens + len(log_p)
        if not math.isfinite(nats):
            raise ArtifactError(
                f"{self._artifact.reference} gives text no probability that is a number: train it again."
            )
        return nats, tokens

    def answers(
        self,
        reading: Reading,
        examples: Documents,
        which: np.ndarray,
        among: Candidates | None = None,
        inside: bool = False,
    ) -> list[int] | list[str]:
        """The most probable label of each of some examples [n], or the answers in words.

        Args:
            among: candidate labels of each example, by number; None: all labels.
            inside: whether the examples are of the split in memory: an example then does not read
            itself.
        Raises: UsageError if adapted weights give no finite scores; ArtifactError if the model's
        own weights give none.
        """
        documents = examples.of(examples.chosen[which])
        try:
            return self._answers(reading, documents, among, inside)
        except NotFinite:
            with suppress(NotFinite):
                self.best(documents, among)
                raise UsageError(
                    f"--memory {reading.spelled}: the adapted weights give labels no probability that is a number: "
                    "choose a smaller lr."
                ) from None
            raise ArtifactError(
                f"{self._artifact.reference} gives labels no probability that is a number: train it again."
            ) from None

    def _answers(
        self, reading: Reading, documents: Documents, among: Candidates | None, inside: bool
    ) -> list[Any]:
        head = self.model.config.head
        if head is not None and head.writes_answers:
            return self._written(head, documents)
        visible = self.memory.visible(self.place)
        if not inside or not reading.hides_example:
            return self._read(reading, documents, among, visible)
        answers = list[Any]()
        for row, document in enumerate(documents.chosen.tolist()):
            part = slice(row, row + 1)
            others = visible[visible != document]
            answers += self._read(
                reading, documents.of(documents.chosen[part]), among and among[part], others
            )
        return answers

    def _read(
        self, reading: Reading, documents: Documents, among: Candidates | None, visible: np.ndarray
    ) -> list[Any]:
        """Answers with the visible documents of memory, int64 [m]."""
        if not len(visible):
            return self.best(documents, among)
        answering = READINGS.load(reading.name)(reading, self)
        answers: list[Any] = answering.answers(documents, visible, among)
        return answers

    def best(self, documents: Documents, among: Candidates | None) -> list[Any]:
        """The most probable label of each example, or the most probable span as text."""
        head = self.model.config.head
        if head is not None and head.marks_spans:
            return self._spans(documents)
        return best_labels(self.probabilities(documents), among)

    def _spans(self, documents: Documents) -> list[str]:
        """The text of the most probable span of each example; empty if that is no span."""
        texts = list[str]()
        for batch in document_batches(documents, self.device):
            with torch.no_grad():
                scores = self.model.label_scores(batch).double()
            if scores.isnan().any() or scores.isposinf().any():
                raise NotFinite
            spans = best_spans(scores).tolist()
            texts += [
                self._text(row[a : b + 1] if b else row[:0])
                for row, (a, b) in zip(batch.inputs, spans, strict=True)
            ]
        return texts

    def _text(self, tokens: Tensor) -> str:
        assert self._decode is not None
        return self._decode(tokens.tolist()).strip()

    def probabilities(self, documents: Documents) -> np.ndarray:
        """p(y | x) of the model alone, float64 [n, |Y|]."""
        with torch.no_grad():
            scores = (
                self.model.label_scores(batch) for batch in document_batches(documents, self.device)
            )
            probabilities: np.ndarray = torch.cat(
                [F.softmax(batch_scores.double(), -1).cpu() for batch_scores in scores]
            ).numpy()
        if not np.isfinite(probabilities).all():  # argmax would return the first NaN
            raise NotFinite
        return probabilities

    def _written(self, head: LanguageSettings, documents: Documents) -> list[Any]:
        """The label that the model writes for each example, -1 if it writes none; or the answer as
        text.

        Labels with the same spelling, for example of several tasks, count as one: the example's
            own, if it is among them.
        """
        spelling = Spelling(head, documents.eos, documents.cutting.context)
        texts = list[Any]()
        for batch in document_batches(documents, self.device):
            sequences = written_answers(self.model, spelling.texts(batch), spelling)
            if not head.answers:
                texts += [self._text(torch.tensor(sequence)) for sequence in sequences]
                continue
            for label, sequence in zip(batch.labels.tolist(), sequences, strict=True):
                number = head.answers.index(sequence) if sequence in head.answers else -1
                texts.append(label if head.answers[label] == sequence else number)
        return texts

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device


def all_documents(model: Artifact, tokens: Artifact, split: str, length: int) -> Documents:
    """All documents of a split as a model reads them, cut to `length` tokens."""
    cutting = model_of(model).cutting(WindowSettings(length, length))
    return documents_of(Corpus.of(tokens).examples(split, cutting))


def documents_by_task(documents: Documents, tokens: Artifact) -> dict[str, Documents]:
    """The documents of each task."""
    return {
        name: documents.of(np.flatnonzero(documents.task_numbers == number))
        for number, name in enumerate(tokens.metrics["tasks"])
    }


def open_memory(model: Artifact, tokens: Artifact, length: int) -> Memory:
    """The documents that a model's method kept; if it keeps none, all that were learnt."""
    split = all_documents(model, tokens, "train", length)
    if MEMORY_FILE in model.manifest.files:
        arrays = load_file(model.file(MEMORY_FILE))
        return Memory(split, arrays["rows"], arrays["tasks"])
    names = tokens.metrics["tasks"]
    order = model.config["order"] or names
    places = np.array([order.index(name) for name in names])
    return Memory(split, np.arange(split.count), places[split.task_numbers])


def open_keys(episodes: Artifact, device: torch.device) -> Keys:
    """The keys of a training split, and the network that made them."""
    stored = np.asarray(episodes.zarr("episodes.zarr")["keys"][:])
    encoder = load_model(episodes.input("encoder").path, device)
    config = episodes.config
    return Keys(encoder, int(config["length"]), config["pool"], stored, config["normalize"])


def document_keys(
    model: LanguageModel,
    examples: Documents,
    which: np.ndarray,
    pool: DocumentPool,
    unit: bool = False,
) -> np.ndarray:
    """Keys of some examples [n], float32 [n, d].

    Args:
        pool: `encoder`: the vector of the encoder's own library; else a pooling of hidden states.
        unit: whether each key is scaled to length 1.
    """
    keys = list[np.ndarray]()
    device = next(model.parameters()).device
    with torch.no_grad():
        for batch in document_batches(examples.of(examples.chosen[which]), device):
            assert batch.mask is not None
            if pool == "encoder":
                vectors = model.embed(batch).float()
            else:
                vectors = pooled(model.read(batch).hidden.float(), batch.mask, pool)
            if unit:
                vectors = F.normalize(vectors, dim=1)
            keys.append(vectors.cpu().numpy())
    return np.concatenate(keys)


def document_batches(examples: Documents, device: torch.device) -> Iterator[LabelledBatch]:
    """All examples, in batches of a bounded number of tokens."""
    size = max(1, BATCH_TOKENS // examples.cutting.context)
    for start in range(0, examples.count, size):
        yield examples.batch(np.arange(start, min(start + size, examples.count))).to(device)
