"""The control of each row: a trigram model that its gain must beat.

The control of a row counts in all the text that the row may read: the model's training text, the
rows of the datastores and, if the row has a cache, the tokens scored so far. The text known
beforehand makes one trigram of joined counts. The scored tokens make another, which counts as it
reads. Both are mixed with one weight.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.evaluation.figures.intervals import UnitFiles
from stages.evaluation.figures.ngram import Ngrams, Pieces, counting_on
from stages.evaluation.figures.places import LastWords, counted_tokens
from stages.evaluation.figures.texts import (
    MOST_TOKENS,
    KnownText,
    counted_texts,
    datastore_texts,
    digests_of,
    input_texts,
    learned_text,
)
from stages.lineage.evaluation import MODELS_OWN
from stages.metrics import finite, perplexity
from stages.retrieval.reading import Past, SourceSettings
from stages.text.tokens import open_split, start_id

if TYPE_CHECKING:
    from stages.retrieval.rows import MemoryRow


TRIGRAM = 3
NEW_TEXT = "perplexity_on_new_text"


class Reads(NamedTuple):
    """Texts that a row may read besides the training text."""

    datastores: tuple[Artifact, ...] = ()
    roles: tuple[str, ...] = ()
    """Other inputs of sources."""
    past: Past | None = None
    """Extent of the past that its caches hold, `stream` or `document`; None: the row has no cache.
    """
    past_tokens: int | None = None
    """Tokens of the past that its largest cache holds; None: all of them."""


@dataclass
class Counting:
    """The controls of one evaluation; a text that two rows share is counted once.

    `read`: artifacts that the evaluation reads, by role. `split`, `tune_split`, `reset`: its
    resolved settings. `outside`: bool [T], whether each token is in no paragraph that was read
    before; None if not known.
    `last_words`: by split, the only tokens that count; None: all count. `order`: number of tokens
    of an n-gram.
    """

    read: Mapping[str, Artifact]
    split: str
    tune_split: str | None = None
    reset: str = "none"
    outside: np.ndarray | None = None
    last_words: Mapping[str, LastWords] | None = None
    order: int = TRIGRAM
    learned_past: Past | None = None
    """Extent of the past that the weights of the model learn from; None: they stay."""
    model_roles: tuple[str, ...] = ()
    """Inputs that the model itself reads, before any memory."""
    _p: dict[tuple[Any, ...], np.ndarray] = field(default_factory=dict)
    _counted: dict[tuple[Any, ...], Ngrams] = field(default_factory=dict)

    def trigram(self) -> dict[str, Any] | None:
        """Figures of a trigram of the model's training text, JSON; None if `control` has no
        figures.
        """
        return learned_text_figures(self.control(Reads()))

    def of_order(self, order: int) -> "Counting":
        """The same controls with longer or shorter n-grams, before anything is counted."""
        return replace(self, order=order, _p={}, _counted={})

    def reads(self, row: "MemoryRow | None", readings: Sequence[Mapping[str, Any]] = ()) -> Reads:
        """Texts that a row may read; None: the model without memories.

        Args:
            readings: the readings of the row, with the numbers that were chosen, as reported.
        """
        settings: list[SourceSettings] = []
        for source in row.sources if row else ():
            settings += source.reading.source_settings

        stores = [self.read[MODELS_OWN].find("datastore")] if MODELS_OWN in self.read else []
        if any(source.reads_datastore for source in settings):
            stores.append(self.read["datastore"])
        datastores = {store.reference: store for store in stores}
        roles = list(self.model_roles)
        roles += [memory.role for source in settings for memory in source.inputs]

        pasts = {source.past(self.reset) for source in settings}
        # Beside a cache its size is what counts: text of long ago makes counting weaker.
        has_cache = pasts - {None}
        pasts = pasts if has_cache else {self.learned_past}
        past: Past | None = "document" if "document" in pasts else None
        if "stream" in pasts:
            past = "stream"
        past_tokens = self._past_tokens(row, readings) if has_cache else None
        return Reads(tuple(datastores.values()), tuple(dict.fromkeys(roles)), past, past_tokens)

    def _past_tokens(
        self, row: "MemoryRow | None", readings: Sequence[Mapping[str, Any]]
    ) -> int | None:
        """The most tokens back that a cache of a row reads; None: all of them."""
        sizes = [0]
        for source, reported in zip(row.sources if row else (), readings, strict=False):
            for settings in source.reading.source_settings:
                if settings.past(self.reset) is None:
                    continue
                # a size that is not reported may be any
                size = reported.get(settings.past_amount or "")
                sizes.append(self._tokens(self.split) if size is None else int(size))
        return max(sizes) if 0 < max(sizes) < self._tokens(self.split) else None

    def control(self, reads: Reads) -> dict[str, Any] | None:
        """The control of a row, JSON.

        Returns: None if counting is meaningless: the split is the training text, or the row reads
            no text to count. Figures are None for more than MOST_TOKENS tokens, which would take
            too long. They are also None for a row that reads the scored text itself, since each
            token may find other rows.
        """
        texts = self._known_texts(reads)
        scored = self._tokens(self.split)
        if not scored or self._is_learned(self.split) or not (texts or reads.past):
            return None
        listed = [
            {"corpus": text.corpus, "split": text.split, "tokens": text.tokens} for text in texts
        ]
        control: dict[str, Any] = {"texts": listed, "past": reads.past}
        if reads.past_tokens is not None:
            control["past_tokens"] = reads.past_tokens
        control |= {"weight": None, "tune_split": None}

        # longer n-grams take more time a token
        max_tokens = MOST_TOKENS * TRIGRAM // max(TRIGRAM, self.order)
        costs_much = max(scored, sum(text.tokens for text in texts)) > max_tokens
        if costs_much or len(self._texts(self.split, reads)) < len(texts):
            return {**control, "nll": None, "perplexity": None, "perplexity_on_new_text": None}
        if texts and reads.past is not None:
            control["tune_split"] = self._fitted_on()
            control["weight"] = self._weight(reads, control["tune_split"])
        return {**control, **self._figures(self.nats(reads, control))}

    def nats(self, reads: Reads, control: Mapping[str, Any]) -> np.ndarray:
        """Nats of every token under a control that has figures, float64 [T]."""
        if not self._known_texts(reads):
            p = self._counting_on(self.split, reads)
        elif reads.past is None:
            p = self._beforehand(self.split, reads)
        else:
            p = mixed(
                self._beforehand(self.split, reads),
                self._counting_on(self.split, reads),
                control["weight"],
            )
        return -np.log(p)

    def _figures(self, nll: np.ndarray) -> dict[str, float | None]:
        """Figures of the counted tokens, from the nats [T] of all tokens."""
        counts = self._that_count(self.split)
        counted = nll[counts]
        new = counted if self.outside is None else counted[self.outside[counts]]
        return {
            "nll": finite(float(counted.mean())),
            "perplexity": perplexity(float(counted.sum()), len(counted)),
            "perplexity_on_new_text": perplexity(float(new.sum()), len(new)),
        }

    def _fitted_on(self) -> str | None:
        """The split on which the weight of the mixture is fitted; None if no split is fit for it.

        It is the tuning split of memory, or `valid` if nothing is tuned.
        """
        split = self.tune_split or "valid"
        if split not in self.read["tokens"].metrics["splits"]:
            return None
        is_scored = self.tune_split is None and self.split == split
        is_short = 0 < self._tokens(split) <= MOST_TOKENS
        if is_scored or not is_short or self._is_learned(split):
            return None
        return split if self.last_words is None or split in self.last_words else None

    def _weight(self, reads: Reads, tune_split: str | None) -> float:
        """The weight of the trigram of scored tokens that is best on the tuning split."""
        if tune_split is None:
            return EVEN
        before = self._beforehand(tune_split, reads)
        on = self._counting_on(tune_split, reads)
        counts = self._that_count(tune_split)
        return best_weight(before[counts], on[counts])

    def _beforehand(self, split: str, reads: Reads) -> np.ndarray:
        """Probabilities from counts in the text known beforehand, float64 [T]."""
        stores = [store.reference for store in reads.datastores]
        key = ("beforehand", split, *stores, *reads.roles)
        if key not in self._p:
            self._p[key] = self._ngrams(self._texts(split, reads)).p(
                self._stream(split, self.reset)
            )
        return self._p[key]

    def _counting_on(self, split: str, reads: Reads) -> np.ndarray:
        """Probabilities from counts in the tokens scored before each token, float64 [T]."""
        key = ("counting on", split, reads.past, reads.past_tokens)
        if key not in self._p:
            restarts = reads.past == "document"
            stream = self._stream(split, "document" if restarts else self.reset)
            self._p[key] = counting_on(stream, *self._counted_as, restarts, reads.past_tokens)
        return self._p[key]

    def _ngrams(self, texts: list[KnownText]) -> Ngrams:
        """Joined counts of some texts; only the last ones are kept, since several splits are read
        with them.
        """
        key = tuple((text.ids, text.tokens) for text in texts)
        if key not in self._counted:
            self._counted.clear()  # before counting, so that memory holds one set of counts
            pieces = [text.content.pieces() for text in texts]
            self._counted[key] = Ngrams.count(pieces, *self._counted_as)
        return self._counted[key]

    def _texts(self, split: str, reads: Reads) -> list[KnownText]:
        """Texts that are counted before a split is read, without the split itself."""
        digests = digests_of(self.read["tokens"], split)
        return [text for text in self._known_texts(reads) if text.ids != digests]

    def _known_texts(self, reads: Reads) -> list[KnownText]:
        """All texts that may be counted beforehand, each once."""
        memories: list[KnownText] = []
        for datastore in reads.datastores:
            memories += datastore_texts(datastore)
        inputs = {role: self.read[role] for role in reads.roles if role in self.read}
        memories += input_texts(inputs)
        return counted_texts(self.read["model"], memories)

    def _is_learned(self, split: str) -> bool:
        learned = learned_text(self.read["model"])
        return learned is not None and learned.ids == digests_of(self.read["tokens"], split)

    def _tokens(self, split: str) -> int:
        return int(self.read["tokens"].metrics["splits"][split]["tokens"])

    def _that_count(self, split: str) -> Any:
        """Index of the tokens of a split that count."""
        return counted_tokens(
            None if self.last_words is None else self.last_words[split], 0, self._tokens(split)
        )

    def _stream(self, split: str, reset: str) -> Pieces:
        """A split as it is read: as one text, or as separate documents."""
        tokens = open_split(self.read["tokens"].zarr("tokens.zarr"), split)
        ids = np.asarray(tokens.ids[:])
        return (
            Pieces.of_documents(ids, np.asarray(tokens.doc_offsets[:]))
            if reset == "document"
            else Pieces(ids)
        )

    @property
    def _counted_as(self) -> tuple[int, int, int]:
        """Order of the n-grams, the token before a text, and the size of the vocabulary."""
        metrics = self.read["tokens"].metrics
        return self.order, start_id(metrics), int(metrics["vocabulary_size"])


class RowControl(NamedTuple):
    """The control of a row: the best n-gram, if n-grams of several orders were counted."""

    figures: dict[str, Any] | None
    """As of `Counting.control`. With several orders `orders` has the figures of all; `order` and
    `order_on_new_text` say which is best there.
    """
    nats: np.ndarray | None
    """Its nats in each document or block, float64 [GROUPS, U]; None if it has no figures."""

    @classmethod
    def best(
        cls, controls: Mapping[int, dict[str, Any] | None], nats: Mapping[int, np.ndarray]
    ) -> "RowControl":
        """The best of several orders; the first of equals.

        On all text and on new text the best order may be another one: long n-grams are best at text
        that was read before.

        Args:
            controls: figures by order.
            nats: sums over documents or blocks by order, float64 [GROUPS, U].
        """
        of_orders = {order: control for order, control in controls.items() if control is not None}
        if not of_orders:
            return cls(None, None)
        order = _best_order(of_orders, "perplexity")
        order_on_new_text = _best_order(of_orders, NEW_TEXT)
        figures = {**of_orders[order], NEW_TEXT: of_orders[order_on_new_text][NEW_TEXT]}
        if len(of_orders) > 1:
            figures |= {"order": order, "order_on_new_text": order_on_new_text, "orders": {}}
            for number, control in of_orders.items():
                figures["orders"][str(number)] = {
                    "perplexity": control["perplexity"],
                    NEW_TEXT: control[NEW_TEXT],
                }
        if order not in nats:
            return cls(figures, None)
        return cls(figures, np.stack([nats[order][0], nats[order_on_new_text][1]]))


def _best_order(controls: Mapping[int, Mapping[str, Any]], figure: str) -> int:
    """The order with the lowest figure; the first order if no figure is known."""
    return min(
        controls, key=lambda n: np.inf if controls[n][figure] is None else controls[n][figure]
    )


def row_controls(
    counting: Counting,
    orders: Sequence[int],
    reads: Mapping[str, Reads],
    files: UnitFiles | None = None,
) -> dict[str, RowControl]:
    """Controls of rows, by name.

    Args:
        orders: orders of n-grams besides that of `counting`.
        reads: texts that each row may read.
        files: sums the nats of controls over documents or blocks; None: no sums.
    """
    controls: dict[str, dict[int, dict[str, Any] | None]] = {name: {} for name in reads}
    nats: dict[str, dict[int, np.ndarray]] = {name: {} for name in reads}
    # one order after the other, so that memory holds the counts of one
    for order in dict.fromkeys((counting.order, *orders)):
        of_order = counting if order == counting.order else counting.of_order(order)
        for name, texts in reads.items():
            control = of_order.control(texts)
            controls[name][order] = control
            if files is not None and control is not None and control["perplexity"] is not None:
                nats[name][order] = files.of_split(of_order.nats(texts, control)).nll[:, 0]
    return {name: RowControl.best(controls[name], nats[name]) for name in reads}


def learned_text_figures(control: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Figures of the control that counts in the model's training text alone, with the name of that
    text; JSON. None if it has no figures.
    """
    if control is None or control["perplexity"] is None:
        return None
    figures = {name: control[name] for name in ("nll", "perplexity", NEW_TEXT)}
    return {**control["texts"][0], **figures}


EVEN = 0.5
"""The weight of each trigram if there is no text to fit it on."""
HALVINGS = 14
"""Halvings of the range of weights: to 1/16,384, too little to change a shown digit of perplexity.
"""


def mixed(first: np.ndarray, second: np.ndarray, weight: float) -> np.ndarray:
    """(1 - weight) first + weight second, float64 [T]."""
    return (1 - weight) * first + weight * second


def best_weight(first: np.ndarray, second: np.ndarray) -> float:
    """The weight of the mixture with the highest likelihood, from 0 to 1.

    The log-likelihood is concave in the weight, so bisection finds where its slope is 0.

    Args:
        first, second: positive probabilities, float64 [T]; for T = 0 the weight is EVEN.

    >>> best_weight(np.array([0.1, 0.9]), np.array([0.9, 0.1]))
    0.5
    """
    low = 0.0
    high = 1.0
    # bisection, not Newton: no step leaves [0, 1], where the mixture is a probability
    for _ in range(HALVINGS):
        weight = (low + high) / 2
        slope = float(((second - first) / mixed(first, second, weight)).sum())
        if slope == 0:
            return weight
        low, high = (weight, high) if slope > 0 else (low, weight)
    return (low + high) / 2
