"""Conditions on the scored text, and explanations of the words in a report."""

from collections.abc import Iterator, Sequence

from stages.diagnostics.options import probe_summaries
from stages.lineage.evaluation import MODELS_OWN
from stages.metrics import shown_word_perplexity
from stages.numbers import joined, number, tenths
from stages.open_book.settings import OPEN_BOOK
from stages.reports.fields import PLAIN, repeated_share
from stages.reports.remarks import MANY_ENDS, MANY_UNKNOWN, MATCHED, UNEVEN, Figures, Finding
from stages.retrieval.hyperparameters import meanings
from stages.retrieval.inputs import memory_inputs
from stages.text.form import form_words


def memory_words(report: Figures) -> Iterator[Finding]:
    """Meanings of the words and numbers of memories, and of the figures of probes."""
    memories = [memory for row in report["rows"] for memory in row.get("memories") or ()]
    words = meanings(memories)
    if words:
        yield (
            "memory-words",
            {"words": "; ".join(f"{word}: {means}" for word, means in words.items())},
        )
    yield from (("probe", {"summary": summary}) for summary in probe_summaries(report))


BREAKS = {
    "future": "reads text that comes later",
    "sum": "has probabilities that do not add up to 1",
    "score": "has scores that are none without the token in sight",
}
"""Words for the conditions of `stages.evaluation.conditions` that a row breaks."""


def conditions(report: Figures) -> Iterator[Finding]:
    """The conditions on fair scores, which were checked while the text was scored."""
    checked = report.get("conditions")
    if not checked or not checked["positions"]:
        return
    positions = number(checked["positions"])
    broken = [row for row in checked["rows"] if row["broken"]]
    for row in broken:
        words = joined([BREAKS[kind] for kind in row["broken"]])
        yield "condition-broken", {"row": row["row"], "breaks": words, "positions": positions}
    if not checked["in_one_pass"]:
        words = "is not scored in one pass"
        yield "condition-broken", {"row": "The text", "breaks": words, "positions": positions}
    elif not broken:
        yield "conditions-hold", {"positions": positions}


def adaptation(report: Figures) -> Iterator[Finding]:
    """Weights that learned while the text was scored."""
    learning = report.get("adaptation")
    if not learning:
        return
    split = learning["tune_split"]
    if not learning["rate"] and split:
        yield "learning-of-no-use", {"split": split}
        return
    for place in learning.get("diverged", ()):
        yield (
            "learning-diverged",
            {
                "rate": number(place["rate"]),
                "token": number(place["token"]),
                "split": report["split"],
                "slower": number(place["then"]),
            },
        )
    numbers = [f"rate {number(learning['rate'])}"]
    if learning["decay"]:
        numbers.append(f"decay {number(learning['decay'])}")
    if split:
        numbers.append(f"tuned on {split}")
    what = "All weights" if learning["rank"] is None else f"Factors of rank {learning['rank']}"
    until = ", until a document ends" if learning["scope"] == "document" else ""
    missing = report.get("baseline") is None
    plain = " --baseline REPORT puts the row of the plain model above." if missing else ""
    yield (
        "learned-while-scored",
        {
            "what": what,
            "segment": number(learning["segment"]),
            "numbers": ", ".join(numbers),
            "until": until,
            "plain": plain,
        },
    )


def open_book(report: Figures) -> Iterator[Finding]:
    """Passages that stood before the context."""
    book = report.get("open_book")
    if not book:
        return
    read = book["forward_tokens"]
    yield (
        "open-book",
        {
            "book": book["book"],
            "passages": number(book["passages"]),
            "length": number(book["passage"]),
            "by": "BM25" if book["by"] == "bm25" else "hits of its keys",
            "stride": number(book["stride"]),
            "share": f"{book['without_passage'] / book['strides']:.1%}",
            "read": number(read[OPEN_BOOK]),
            "plain": number(read[PLAIN]),
        },
    )


def word_perplexity(report: Figures) -> Iterator[Finding]:
    """Perplexity per word, if tokens are not words."""
    row = report["rows"][0]
    words = shown_word_perplexity(row.get("word_perplexity"), row.get("bits_per_character"))
    if words and words != row["perplexity"]:
        yield "word-perplexity", {}


def document_ends(report: Figures) -> Iterator[Finding]:
    """A large share of ends of documents, which are easy to predict."""
    share = report.get("document_ends")
    ends = report.get("end_tokens")
    if share and ends and share > MANY_ENDS:
        lines = ", or its last line break" if ends["rate"] > share else ""
        yield (
            "document-ends",
            {"rate": f"{ends['rate']:.1%}", "lines": lines, "without": _without(ends)},
        )


def other_form(report: Figures) -> Iterator[Finding]:
    """A scored split that differs in form from the training text."""
    if report.get("form"):
        yield "other-form", form_words(report["form"])


def training_text(report: Figures) -> Iterator[Finding]:
    """A scored split that is the model's own training text; unknown for models trained elsewhere."""
    read = report.get("read", {})
    texts = (report.get("outside_repeated_paragraphs") or {}).get("texts", ())
    own_values = {
        text["corpus"] for text in texts if text["split"] == "train" and "model" in text["read_by"]
    }
    if (
        report.get("split") == "train"
        and report.get("training")
        and read.get("tokens") in own_values
    ):
        yield "scored-training-text", {"model": read["model"]}


def uneven_valid(report: Figures) -> Iterator[Finding]:
    """A valid split, on which memories are tuned, that is notably harder or easier than the scored
    split.
    """
    first = report["rows"][0]
    valid = report.get("valid_perplexity")
    scored = first["perplexity"]
    if (
        valid
        and scored
        and not 1 / UNEVEN <= scored / valid <= UNEVEN
        and not any(training_text(report))
    ):
        harder = "harder" if valid > scored else "easier"
        perplexities = {"valid": number(valid), "scored": number(scored)}
        yield (
            "uneven-valid",
            {"first": first["row"], "split": report["split"], "harder": harder, **perplexities},
        )


def text_words(roles: Sequence[str]) -> str:
    """Words before a text that was read, by the roles of its readers; none for the model's own."""
    if "model" in roles:
        return ""
    for role, memory in memory_inputs().items():
        if role in roles:
            return f"{memory.words}, "
    return "the datastore's text, "


def repeated_text(report: Figures) -> Iterator[Finding]:
    """Paragraphs that were read before, in `train` of the model, or in `the datastore's text, train
    of tokens/…`.
    """
    outside = report.get("outside_repeated_paragraphs")
    if outside is None:
        return
    names = []
    texts = outside.get("texts", ())
    for text in texts:
        holder = text_words(text["read_by"])
        name = f"{holder}{text['split']} of {text['corpus']}" if holder else text["split"]
        names.append(f"{name} ({text['repeated_share']:.1%})" if len(texts) > 1 else name)
    yield (
        "repeated-text",
        {"share": f"{tenths(repeated_share(report))}%", "texts": " or ".join(names) or "train"},
    )


def matched_text(report: Figures) -> Iterator[Finding]:
    """Long matches with texts that were read before, if they are many, and the rows without them."""
    outside = report.get("outside_matches")
    if outside is None or outside["shares"][str(outside["new_below"])] < MATCHED:
        return
    shares = joined(
        [
            f"{share:.1%} of the tokens in matches of {length} or more"
            for length, share in outside["shares"].items()
        ]
    )
    texts = [
        f"{row['row']} {number(row['perplexity'])}"
        for row in outside["rows"]
        if row["perplexity"] is not None
    ]
    yield (
        "matched-text",
        {"shares": shares, "length": outside["new_below"], "rows": "; ".join(texts) or "nothing"},
    )


def unknown_tokens(report: Figures) -> Iterator[Finding]:
    """A large share of unknown tokens, which are easier to predict than words."""
    if (report.get("unknown_rate") or 0) > MANY_UNKNOWN:
        unknown = report["unknown_tokens"]
        yield "unknown-tokens", {"rate": f"{unknown['rate']:.1%}", "without": _without(unknown)}


def unknown_rates(figures: Figures) -> Iterator[Finding]:
    """A large share of unknown tokens, in a split without figures that leave them out, or in two
    tokenizations.
    """
    if (figures.get("unknown_rate") or 0) > MANY_UNKNOWN:
        yield "unknown-rate", {"rate": f"{figures['unknown_rate']:.1%}", "split": figures["split"]}
    rates = [figures.get(f"unknown_rate_{side}", 0) for side in "ab"]
    if max(rates) > MANY_UNKNOWN:
        yield "unknown-rates", {"a": f"{rates[0]:.1%}", "b": f"{rates[1]:.1%}"}


def own_text(report: Figures) -> Iterator[Finding]:
    """A datastore that was built from the scored text."""
    exclude = report.get("exclude")
    if not exclude:
        return
    source = next(
        report["read"][role]
        for role in ("datastore", *memory_inputs(), MODELS_OWN)
        if role in report["read"]
    )
    rows = "its own row"
    others = "rows of the tokens next to it"
    if exclude == "document":
        rows = "the rows of its document"
        others = "those of other documents"
    elif exclude.startswith("window:"):
        near = exclude.removeprefix("window:")
        rows = f"the rows of the {near} tokens before and after it"
        others = "those further away"
    yield (
        "scored-datastore-text",
        {"made": source, "exclude": exclude, "rows": rows, "others": others},
    )


def _without(left_out: Figures) -> str:
    """Perplexity of every row without some tokens: `plain 640; knn-lm 384 (-40.0%, 61% of its gain
    was theirs)`.
    """
    rows = []
    before = left_out["rows"][0]["perplexity_without"]
    for row in left_out["rows"]:
        value = row["perplexity_without"]
        share = row["share_of_gain"]
        parts = (
            [f"{value / before - 1:+.1%}"]
            if value is not None and before and value != before
            else []
        )
        parts += (
            [f"{share:.0%} of its gain was theirs"]
            if value is not None and share is not None
            else []
        )
        figure = "not known" if value is None else number(value)
        rows.append(f"{row['row']} {figure}" + (f" ({', '.join(parts)})" if parts else ""))
    return "; ".join(rows)
