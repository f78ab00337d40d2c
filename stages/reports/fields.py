"""Names of the rows and files of a report, and descriptions of the fields of its `metrics.json`.

Null in a field means not measured, or meaningless. Does not import torch.
"""

from collections.abc import Mapping
from typing import Any

from stages.diagnostics import PROBES
from stages.reports.measures import OWN_MEASURES

SHUT = "spalm, gate shut"
"""Name of the row of the same model without a neighbour."""
SHORTER = "shorter window, no passage"
"""Name of the row of the same model in the room that an open book leaves."""
COMPARED = (SHUT, SHORTER)
"""Names of rows that stand last, as comparisons: nothing saves their scores as a row's."""
Figures = Mapping[str, Any]

PLAIN = "plain"
GATED = "spalm"
"""Names of the first row: a model without memory, or a model whose gate reads neighbours into its
hidden states.
"""

BESIDE_BOOK = (SHORTER, PLAIN)
"""Names of the rows beside an open book, in their order."""

TRANSLATIONS = "translations.jsonl"
CHANGED = "changed-translations.json"
"""Files of translations, and of the sentences that memory changed most."""


def counting(row: Figures) -> float | None:
    """Perplexity of a row's control, a trigram of all text that the row may read; None without a
    control.
    """
    value: float | None = (row.get("control") or {}).get("perplexity")
    return value


def counting_on_new_text(row: Figures) -> float | None:
    """Perplexity of a row's control on tokens in no paragraph that was read before; None if not
    known.
    """
    value: float | None = (row.get("control") or {}).get("perplexity_on_new_text")
    return value


def repeated_share(report: Figures) -> float:
    """Share of the scored tokens in paragraphs that were read before."""
    return float((report.get("outside_repeated_paragraphs") or {}).get("repeated_share") or 0)


def baseline_name(report: Figures) -> str:
    """Name of the baseline's row: `plain (model/0123456789ab)`; with its report if both have the
    same model. Of a row of the same report its name alone.
    """
    baseline = report["baseline"]
    if baseline["report"] is None:
        return str(baseline["row"]["row"])
    of = baseline["report"] if baseline["model"] == report["read"]["model"] else baseline["model"]
    return f"{baseline['row']['row']} ({of})"


LAYERS = [probe for probe in PROBES.targets if probe != "gate"]
"""Probes of layers with a memory."""
FIELDS = {
    "split": "The split that was scored.",
    "score": "`all` tokens, or the `last-word` of each passage.",
    "tokens": "Scored tokens.",
    "words": "Words of the scored text.",
    "unknown_words": "Passages whose last word is not in the vocabulary.",
    "document_ends": "Share of the tokens that are the `<eos>` of a document.",
    "end_tokens": "What these gain, as in `unknown_tokens`.",
    "unknown_rate": "Share of `<unk>`.",
    "unknown_tokens": "Its `rows`, each with the perplexity of all other tokens (`perplexity_without`) and the part of "
    "its gain that comes from `<unk>` (`share_of_gain`).",
    "nll": "Mean negative log-likelihood of a token in nats, of the memory asked for, or of the model alone.",
    "perplexity": "exp(`nll`).",
    "bits_per_character": "Bits of the text by its characters.",
    "bits_per_byte": "Bits of the text by its bytes, a CRLF as one.",
    "word_perplexity": "exp of the nats by the words.",
    "accuracy": "With `last-word`: share of passages whose last word is the likeliest.",
    "diverged": "Whether it is worse than a uniform guess.",
    "tokens_per_second": "Speed of reading with all that was tuned.",
    "searches_per_token": "Searches of stored entries for each token.",
    "forward_tokens": "Tokens that the model reads for each scored one; one that it learns counts three.",
    "seconds": "Making of the model and of what is read besides, from tokens on, and reading of the split; without "
    "tuning. Null: something of it is gone.",
    "bytes_beside_model": "Bytes on disk of what is read besides the model.",
    "memories": "The readings with their numbers: which were `tuned`, on which `tune_split`, and whether the best lies "
    "in the `interior` of its grid.",
    "method": "The method that the model was trained with.",
    "rows": "The same figures of every row: `plain` first (of a model with a gate `spalm`), then the memory asked for, "
    "then what it is compared with. `control` is counting in what the row reads: the `texts`, `past`, the `weight` of "
    "what was scored so far, `perplexity`, `perplexity_on_new_text`; `interval` and `interval_on_new_text` of the row's "
    "change against it; `orders` of `--count-orders`.",
    "trigram": "A trigram of the model's training text: `perplexity`, `perplexity_on_new_text`.",
    "training": "`passes` of the model over its text; whether validation was `still_falling`.",
    "valid_perplexity": "What training ended with.",
    "baseline": "The report of `--baseline`, its first `row`, and what `differs`; null for `report`: the plain model of "
    "this report, beside an open book.",
    "open_book": "The `book`, its settings, the `strides`, those `without_passage`, those whose best passage was "
    "`excluded`, and `forward_tokens`: inputs read for each scored token, by row.",
    "form": "Differences in form between the training text and what was scored.",
    "change_intervals": "The bootstrap: of each row the `interval` of its change, also `on_new_text`, and of how far "
    "it lies `above_lowest`.",
    "adaptation": "Of dynamic evaluation: `what` learns, in which `scope`, after each `segment`; its `rate` and `decay`; "
    "the combinations that were `tried` on the `tune_split`; the tokens at which a rate `diverged`; the training text "
    "whose `gradients` were measured.",
    "conditions": "Conditions on fair scores, checked at so many `positions`: of each row the nats by which later text "
    "changed a score (`future`), the distance of the `sum` of probabilities from 1, and the nats between a reported "
    "`score` and that without the token in sight.",
    "curves": "Perplexity `over` `k`, `size`, `window` or `neighbors`, with the settings of each point.",
    "grid": "Tuning of a lone reading: `scales`, `weights`, `nll` [scale][weight].",
    "tuning": "Figures of the tuning split; with `--tune-by bleu` the BLEU of every candidate.",
    "remarks": "Codes of the page's remarks, the severest first (`stages/reports/remarks/table.py`).",
    "learned_weight": "Of `lambda=learned` and its like: whether it was `used`; `one_for_all`; `held_out_gains`; "
    "`mean` and `histogram` on the scored split; `searches`, the perplexity by share of searches.",
    "searched_share": "Share of the tokens that were searched for.",
    "exclude": "The rows that tokens may not find, where the datastore was made of this split.",
    "outside_repeated_paragraphs": "Perplexities on text whose paragraphs were not read before.",
    "outside_matches": "Perplexities outside long matches with texts read before, and the shares of such matches.",
    "frequency_buckets": "Perplexity by how often a type stands in `train` or in the `split`.",
    "retrieval_accuracy": "By k: share of tokens among the values of their k neighbours.",
    "retrieval_accuracy_by_chance": "The same of k rows at random.",
    "gate": "How far a gate opens: `mean`, `histogram`; `neighbors_right` by k; perplexity `by_neighbors`.",
    **dict.fromkeys(
        LAYERS, "Figures of such a layer, by block; its page of explanation names them."
    ),
    **{measure.name: measure.explanation for measure in OWN_MEASURES if measure.value is not None},
    "translation": "Settings of the search, and `rows` with BLEU and chrF.",
    "read": "Role -> reference of all that was read.",
}
"""Meaning of each field."""
