"""Remarks on a report's figures, as sentences for terminals and pages."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf, log
from typing import Any

from stages.diagnostics.shown import probe_summaries
from stages.evaluation.figures.baseline import shut_line, unlike_line
from stages.evaluation.figures.control_text import beaten_lines, counted_line
from stages.evaluation.figures.learned_weight import learned_line, searches_line
from stages.evaluation.figures.row_names import PLAIN
from stages.methods import METHODS
from stages.metrics import FEWEST_UNITS, LARGEST_WORD_PERPLEXITY, LONG_WORD, shown_word_perplexity, undertrained
from stages.numbers import joined, number
from stages.retrieval.memory_words import meanings, switched_off
from stages.text.form import form_line

Figures = Mapping[str, Any]
UNIGRAM = (
    "unigram-cache: a cache that only counts tokens and compares no contexts (theta 0): the control for what comparing "
    "them gains"
)
OFF = "lambda 0 switches a memory off, however much is read of it"
LONGER = "--steps or --epochs of train, --minutes of try"
"""Options that train a model for longer."""
HARDLY = 0.95
"""Share of the trigram's perplexity above which a model is hardly better than counting."""
FEW_UNITS = 20
"""Documents, or blocks, below which an interval is rough."""
UNEVEN = 1.25
"""Factor between perplexities of valid and test above which one is notably harder. Those of WikiText and Penn Treebank
lie within 1.05 of each other; splits of a few thousand tokens within this one, by chance."""
MANY_ENDS = 0.02
"""Share of tokens that end documents above which they lower a perplexity notably: of lines, which end with a line
break anyway, four in a hundred are worth a fifth of it."""
UNKNOWN_TOLD = 0.01
"""Share of unknown tokens above which a perplexity means another thing than it seems to."""


def remarks(report: Figures) -> list[str]:
    """All that the content of a `metrics.json` gives reason for."""
    return [*on_change(report), *on_text(report)]


def on_change(report: Figures) -> Iterator[str]:
    """Which rows do not beat counting, what every change is against, and what makes it larger than it should be."""
    trigram, fair = list(control_lines(report)), _fair_rows(report, report["rows"])
    loses = is_weak(report) and worse_than_trigram(report, fair[0]["row"])
    yield from shut_line(report["rows"])
    yield from trigram[1:] if loses else ()
    yield from beaten_lines(report, fair[1:] if loses else fair)
    yield from against_lines(report)
    if report.get("learned_weight"):
        yield from filter(None, (learned_line(report), searches_line(report)))
    if report.get("change_intervals"):
        yield _intervals_line(report["change_intervals"])
        yield from _ties_lines(report)
    yield from worse_than_none_lines(report)
    yield from trigram[:1] if loses else trigram
    yield from counted_line(report)
    yield from undertrained_lines(report)


def on_text(report: Figures) -> Iterator[str]:
    """Remarks from probes, and on tokens of the text that were known before, or are no words."""
    yield from memory_words_lines(report)
    yield from probe_summaries(report)
    yield from _vocabulary_lines(report["rows"][0])
    yield from _word_lines(report)
    yield from _ends_lines(report)
    if report.get("form"):
        yield form_line(report["form"])
    yield from list(training_text_lines(report)) or _uneven_lines(report)
    outside = report.get("outside_repeated_paragraphs")
    if outside:
        yield from _repeated_lines(report["split"], outside)
    if (report.get("unknown_rate") or 0) > UNKNOWN_TOLD:
        yield unknown_line(report["unknown_tokens"])
    if report.get("exclude"):
        made = report["read"]["datastore" if "datastore" in report["read"] else "gate_neighbors"]
        yield f"{made} was made of what is read here (--exclude {report['exclude']}): {_left_out(report['exclude'])}"


def _left_out(exclude: str) -> str:
    """Which rows of its own text a token finds, where some are left out, and that this is no result."""
    if exclude == "document":
        rows, found = "the rows of its document", "those of other documents"
    elif exclude.startswith("window:"):
        near = exclude.removeprefix("window:")
        rows, found = f"the rows of the {near} tokens before and after it", "those further away"
    else:
        rows, found = "its own row", "rows of the tokens beside it"
    return f"a token may not find {rows}; {found} are found: no result for new text"


def memory_words_lines(report: Figures) -> Iterator[str]:
    """Explain the words and numbers of memories; name controls, memories that are off, and caches that hold all."""
    memories = [memory for row in report["rows"] for memory in row.get("memories") or ()]
    words = meanings(memories)
    if words:
        yield "; ".join(f"{word}: {means}" for word, means in words.items())
    counts = any("unigram-cache" in row["row"] for row in report["rows"])
    said = [*([UNIGRAM] if counts else []), *([OFF] if any(map(switched_off, memories)) else [])]
    if said:
        yield "; ".join(said)
    sizes = [memory["size"] for memory in memories if memory.get("size") and not switched_off(memory)]
    if sizes and report.get("score") == "all" and max(sizes) >= report["tokens"]:
        yield (
            f"a cache of {max(sizes):,} holds every position before the one that reads: what was scored has "
            f"{report['tokens']:,} (inspect and generate show the length of what they read in its place)"
        )


def training_text_lines(report: Figures) -> Iterator[str]:
    """That what was scored is the text that the model learned, where it is; not said of models trained elsewhere."""
    read, texts = report.get("read", {}), (report.get("outside_repeated_paragraphs") or {}).get("texts", ())
    own = {text["corpus"] for text in texts if text["split"] == "train" and "model" in text["read_by"]}
    if report.get("split") == "train" and report.get("training") and read.get("tokens") in own:
        yield (
            f"train is what {read['model']} learned: its perplexity there is of text that it has read, and says "
            "nothing of other text (--split test)"
        )


def _vocabulary_lines(row: Figures) -> Iterator[str]:
    """Explain word perplexity, where tokens are no words."""
    words = shown_word_perplexity(row.get("word_perplexity"), row.get("bits_per_character"))
    if words and words != row["perplexity"]:
        yield (
            "perplexity is of tokens, which differ between vocabularies; bits/char, and word perplexity, exp(nats a "
            "word, an end of a line being one), compare models of different ones"
        )


def _word_lines(report: Figures) -> Iterator[str]:
    """Why rows have no word perplexity, where some have none."""
    rows = [row for row in report["rows"] if row["perplexity"] is not None and not row.get("diverged")]
    rows = [row for row in rows if "word_perplexity" in row and row.get("bits_per_character") and "nll" in row]
    without = [row for row in rows if shown_word_perplexity(row["word_perplexity"], row["bits_per_character"]) is None]
    if not without or not report.get("words"):  # or a report of before that was counted
        return
    row, of = without[0], "" if len(without) == len(rows) else f" of {', '.join(row['row'] for row in without)}"
    bits = row["bits_per_character"]
    length = row["nll"] * report["tokens"] / (log(2) * bits * report["words"])
    if length > LONG_WORD:
        why = f"white space sets {length:,.0f} characters apart on average, which are no words"
    else:
        why = (
            f"it is above {LARGEST_WORD_PERPLEXITY:,.0f}, as a word has {number(length)} characters here, and a "
            f"character {number(bits)} bits"
        )
    yield f"no word perplexity{of}: {why}; bits/char compare vocabularies"


def _ends_lines(report: Figures) -> Iterator[str]:
    """That ends of documents lower a perplexity, where they are many, and what it is without them."""
    share, ends = report.get("document_ends"), report.get("end_tokens")
    if not share or share <= MANY_ENDS:
        return
    larger = "the same text in larger documents has a higher perplexity, and more bits a character"
    if ends is None:  # a report of before that was measured
        yield f"{share:.1%} of the tokens are <eos>, one a document, and easy to tell: {larger}"
        return
    line_ends = ", or the line end before it" if ends["rate"] > share else ""
    yield (
        f"{ends['rate']:.1%} of the tokens are the <eos> of a document{line_ends}, and easy to tell: {larger}; "
        f"{_without_line(ends)}"
    )


def uneven(report: Figures) -> str | None:
    """`harder` or `easier`: valid, which memories are tuned on, beside what was scored; None: neither, notably."""
    scored, valid = report["rows"][0]["perplexity"], report.get("valid_perplexity")
    if not valid or not scored or 1 / UNEVEN <= scored / valid <= UNEVEN:
        return None
    return "harder" if valid > scored else "easier"


def _uneven_lines(report: Figures) -> Iterator[str]:
    """That valid and the scored split are not alike, where they are not."""
    valid_is = uneven(report)
    if valid_is is None:
        return
    first, split = report["rows"][0], report["split"]
    valid, scored = number(report["valid_perplexity"]), number(first["perplexity"])
    yield (
        f"{first['row']} has perplexity {valid} on valid and {scored} on {split}: valid is {valid_is}, so what is "
        f"tuned on it may not suit {split}, and neither stands for the whole; larger shares (--split 0.8,0.1,0.1 of "
        "tokenize or try) or more texts make them alike"
    )


def against_lines(report: Figures) -> Iterator[str]:
    """Name the row that every change of the table is against, and whether that is fair."""
    baseline = report.get("baseline")
    if baseline is not None:
        first, model, method = baseline["row"]["row"], f"{baseline['model']} ({baseline['report']})", baseline["method"]
    elif len(report["rows"]) > 1 and "model" in report.get("read", {}):
        first, model, method = report["rows"][0]["row"], report["read"]["model"], report["method"]
    else:
        return
    if baseline is not None:
        yield from unlike_line(baseline)
    yield f"change: against {first}, {model} {'without memory' if first == PLAIN else 'with what its gate reads'}"
    if first == PLAIN and trained_with_memory(method):
        yield (
            "it learned to be read with memory, so this row is no fair baseline; --baseline REPORT puts the row of an "
            "ordinary model above"
        )


def trained_with_memory(method: str) -> bool:
    """Whether models of a method learn to be read with memory, so that none without it is a fair baseline."""
    return method in METHODS.names() and METHODS.settings(method).evaluation.trained_with_memory


def _intervals_line(intervals: Figures) -> str:
    """Explain the intervals of the changes, and their limits."""
    line = resampled_line(intervals)
    if intervals["units"] < FEWEST_UNITS:
        return line
    return (
        f"{line}, the same draws for each row and the first: how far other text of this kind may move the change; "
        "other trainings: --seeds"
    )


def tied(report: Figures) -> tuple[str, list[str]] | None:
    """The row with the lowest perplexity, and those that may lie above it by chance alone; None without such.

    Reports of before that was measured have none.
    """
    rows = (report.get("change_intervals") or {}).get("rows", ())
    ties = [row["row"] for row in rows if row.get("above_lowest") and row["above_lowest"][0] <= 0]
    baseline = [report["baseline"]["row"]] if report.get("baseline") else []
    lowest = min([*baseline, *report["rows"]], key=lambda row: inf if row["perplexity"] is None else row["perplexity"])
    of_these = any(row["row"] == lowest["row"] and not row["above_lowest"] for row in rows if "above_lowest" in row)
    return (lowest["row"], ties) if ties and of_these and lowest not in baseline else None


def _ties_lines(report: Figures) -> Iterator[str]:
    """That the lowest row is not surely the best, where it is not."""
    found = tied(report)
    if found:
        lowest, ties = found
        differ = "differs" if len(ties) == 1 else "differ"
        yield f"{lowest} is lowest, but {joined(ties)} {differ} from it by no more than chance may give: they tie"


def resampled_line(bootstrap: Figures) -> str:
    """How the intervals in brackets were made."""
    units = f"{bootstrap['units']:,} {bootstrap['unit']}{'s' if bootstrap['units'] != 1 else ''}"
    if bootstrap["unit"] == "group":
        units += f" of consecutive documents, {bootstrap['block_tokens']:,} tokens or more in each"
    elif bootstrap.get("block_tokens"):
        units += f" of {bootstrap['block_tokens']:,} consecutive tokens"
    if bootstrap["units"] < FEWEST_UNITS:
        return f"no intervals: {units}: too few to say how far other text would move a change; score more text"
    rough = " (few: the intervals are rough, and rather too narrow)" if bootstrap["units"] < FEW_UNITS else ""
    return (
        f"in brackets: {100 * bootstrap['confidence']:.4g}% intervals from {bootstrap['samples']:,} resamples of "
        f"{units}{rough}"
    )


def worse_than_none_lines(report: Figures) -> Iterator[str]:
    """That a lone memory costs whatever was tried, where that it be switched off was not."""
    grid = report.get("grid") or {"nll": ()}
    tried = [value for line in grid["nll"] for value in line if value is not None]
    if not tried or grid["weight_name"] != "lambda" or 0 in grid["weights"] or min(tried) <= grid["plain_nll"]:
        return
    yield (
        f"{grid['row']} is worse on {grid['split']} than no memory with every lambda that was tried: lambda=tune tries "
        "0, too (a report of a memlm that did not: remove it, and evaluate again)"
    )


def control_lines(report: Figures) -> Iterator[str]:
    """Report the trigram on the same text, with a warning where the model is no better."""
    counted = report.get("trigram")
    if not counted or counted["perplexity"] is None:
        return
    line, outside = f"a trigram of the training text alone: {number(counted['perplexity'])}", _on_new_text(report)
    rows, limit = (report["rows"], counted["perplexity"]) if outside is None else outside
    yield line if outside is None else f"{line}, on new text {number(limit)}"
    first, *others = _fair_rows(report, rows)
    if _beats(first, limit * HARDLY):
        return
    better, beats = ("hardly", "hardly beats") if _beats(first, limit) else ("no", "does not beat")
    trigram = f"the trigram ({number(limit)}{'' if outside is None else ' on new text'})"
    yield (
        f"{first['row']} is {better} better than {trigram}{_of_others(others, limit)}: what a memory gains on a "
        f"model that {beats} counting three tokens says little about stronger ones; {_remedy(report)}"
    )


def _fair_rows(report: Figures, rows: Sequence[Figures]) -> Sequence[Figures]:
    """Those of a model as it was trained to be read, the first of which stands for it."""
    return rows[1:] if len(rows) > 1 and trained_with_memory(report.get("method", "")) else rows


def _of_others(rows: Sequence[Figures], limit: float) -> str:
    """That no other row is better than the trigram either, or hardly."""
    if not rows or any(_beats(row, limit * HARDLY) for row in rows):
        return ""
    if any(_beats(row, limit) for row in rows):
        return ", and no other row is by more than a little"
    return ", nor is any other row"


def _remedy(report: Figures) -> str:
    """Advice on a weak model: more passes over its text as long as they help, else more text."""
    training = report.get("training")
    if training is None:
        return "train longer, or on more text"
    if undertrained(training):
        return f"train longer ({LONGER}), or on more text"
    return f"it was trained for {passes(training['passes'])}, and more would gain little: train on more text"


def is_weak(report: Figures) -> bool:
    """Whether the lines on the trigram warn of a model that does not beat it."""
    return len(list(control_lines(report))) > 1


def worse_than_trigram(report: Figures, name: str) -> bool:
    """Whether counting three tokens gives more than a row, on new text where some was read before."""
    counted = report.get("trigram")
    if not counted or counted["perplexity"] is None:
        return False
    rows, limit = _on_new_text(report) or (report["rows"], counted["perplexity"])
    return any(row["row"] == name and not _beats(row, limit) for row in rows)


def beside_trigram(report: Figures, row: Figures) -> str:
    """How a row of a weak model stands to counting: `worse than a trigram, 17.2`, or how the model does without it."""
    counted, first = report["trigram"]["perplexity"], _fair_rows(report, report["rows"])[0]
    for one, name in ((row, ""), (first, f"{first['row']} ")):
        if not _beats(one, counted * HARDLY):
            return f"{name}{'hardly better' if _beats(one, counted) else 'worse'} than a trigram, {number(counted)}"
    return "hardly better than a trigram on new text, if at all"


def _on_new_text(report: Figures) -> tuple[Sequence[Figures], float] | None:
    """The rows and the trigram on text that was not read before, of which counting knows no more than a model.

    None where all text is new, or none is.
    """
    outside, counted = report.get("outside_repeated_paragraphs"), report["trigram"]["perplexity_on_new_text"]
    return (outside["rows"], counted) if outside and outside["repeated_share"] and counted is not None else None


def _beats(row: Figures, limit: float) -> bool:
    return row["perplexity"] is not None and row["perplexity"] < limit


def undertrained_lines(report: Figures) -> Iterator[str]:
    """A warning that a memory's gain is that of a model that was not trained to its end, where one is due."""
    training = report.get("training")
    if not training or not undertrained(training):
        return
    falling = ", and validation was still falling late in the run" if training["still_falling"] else ""
    yield (
        f"{report['read']['model']} was trained for {passes(training['passes'])} over its text{falling}: a memory "
        f"gains more on an undertrained model: on one trained for longer ({LONGER}) it usually gains less"
    )


def passes(count: float) -> str:
    """`0.5 passes`, `1 pass`."""
    return f"{number(count)} pass{'' if count == 1 else 'es'}"


def unknown_line(unknown: Figures) -> str:
    """How many tokens are `<unk>`; of every row the perplexity without them, and how much of its gain they make up."""
    return f"{unknown['rate']:.1%} of the tokens are <unk>; {_without_line(unknown)}"


def _without_line(left_out: Figures) -> str:
    """Perplexity of every row without some tokens, and their share of its gain."""
    rows = left_out["rows"]
    gains = ", their share of each gain" if any(row["share_of_gain"] is not None for row in rows) else ""
    return f"perplexity without them{gains}: " + "; ".join(f"{row['row']} {_without(row, rows[0])}" for row in rows)


def _without(row: Figures, first: Figures) -> str:
    """`384 (-40.0%), 61%`: perplexity, its change, the part of the whole gain that is of the tokens left out."""
    value, before, share = row["perplexity_without"], first["perplexity_without"], row["share_of_gain"]
    if value is None:
        return "not known"
    change = f" ({value / before - 1:+.1%})" if before and value != before else ""
    return f"{number(value)}{change}{'' if share is None else f', {share:.0%}'}"


def unknown_rate_line(split: str, rate: float | None) -> Iterator[str]:
    """That a perplexity of some tokens says less of words than it seems to, where enough of them are `<unk>`."""
    if (rate or 0) > UNKNOWN_TOLD:
        yield (
            f"{rate:.1%} of the tokens of {split} are <unk>, which is easier to guess than the words that it stands "
            "for: perplexity is lower by that"
        )


def _repeated_lines(split: str, outside: Figures) -> Iterator[str]:
    """How much of the scored text was read before, and of what that could not be found out."""
    texts = outside.get("texts", ())
    unchecked = [text for text in texts if text.get("undivided")]
    if not texts or len(unchecked) < len(texts):
        known = {**outside, "texts": [text for text in texts if text not in unchecked]}
        yield f"{outside['repeated_share']:.1%} of the tokens stand in paragraphs that are also in {_texts(known)}"
    for text in unchecked:
        one = split if text["undivided"] == "scored" else _text(text)
        yield f"not checked: whether text of {split} is also in {_text(text)}, since {one} is a single paragraph"


def _texts(outside: Figures) -> str:
    """The texts that paragraphs stand in, with the share of the scored tokens that do where there are several."""
    texts = [(_text(text), f" ({text['repeated_share']:.1%})") for text in outside.get("texts", ())]
    return " or ".join(f"{name}{share if len(texts) > 1 else ''}" for name, share in texts) or "train"


def _text(text: Figures) -> str:
    """`train`, what the model learned, or `the datastore's text, train of tokens/…`."""
    if "model" in text["read_by"]:
        return str(text["split"])
    return f"the datastore's text, {text['split']} of {text['corpus']}"
