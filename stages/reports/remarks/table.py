"""Every remark by its code, with its severity and its sentences. The conditions are in the other
files of this folder.

A remark has at most two sentences, each of one idea and at most twenty words. Figures and names do
not count.
"""

from collections.abc import Sequence

from stages.reports.remarks import (
    Condition,
    Figures,
    Remark,
    Severity,
    Values,
    gains,
    scored_text,
    tuning,
)
from stages.text.form import DIFFER_IN_FORM

NOTE, CAUTION, SEVERE = Severity
LONGER = "--steps or --epochs of train, --minutes of try"
"""Options that train a model for longer."""

SENTENCES = {
    SEVERE: {
        "gate-gains-nothing": "The gate gains nothing here: perplexity is {open} with neighbours and {shut} without.",
        "condition-broken": (
            "{row} {breaks}, as {positions} positions of this run show: its perplexity is no result."
        ),
        "worse-than-trigram": "{row} is no better than counting ({limit}){rest}. {remedy}",
        "worse-than-counting": (
            "{rows} {do} not beat counting{new}: a trigram of what {they} may read is at least as good."
        ),
        "scored-training-text": (
            "Train is what {model} learned: this perplexity says nothing of other text (--split test)."
        ),
        "scored-datastore-text": (
            "{made} was made of the text that is scored (--exclude {exclude}): this is no result for new text. A "
            "token may not find {rows}, but finds {others}."
        ),
        "tuned-on-scored": (
            "{numbers} were tuned on {split}, the text that is scored: this is no result for other text "
            "(--tune-split valid)."
        ),
        "seeds-worse-than-counting": "{label}: {rows} {do} not beat counting in the same text, by the mean.",
    },
    CAUTION: {
        "ties-with-counting": (
            "{rows} {are} not surely better than counting{new}: on other text the order may be the reverse."
        ),
        "hardly-better-than-trigram": "{row} is hardly better than counting ({limit}){rest}. {remedy}",
        "unlike-baseline": "{model} is no fair baseline: the model here differs in more than its memory ({differs}).",
        "no-fair-baseline": (
            "The model learned to be read with memory, so {first} is no fair baseline. --baseline REPORT puts the "
            "row of an ordinary model above."
        ),
        "undertrained": (
            "{model} was trained for {passes} over its text{falling}. "
            f"A memory usually gains less on a model that is trained for longer ({LONGER})."
        ),
        "uneven-valid": (
            "Valid is {harder}: {first} has perplexity {valid} on valid and {scored} on {split}. Larger shares "
            "(--split 0.8,0.1,0.1 of tokenize or try), or more texts, make them alike."
        ),
        "other-form": DIFFER_IN_FORM,
        "unknown-tokens": (
            "{rate} of the tokens are <unk>, which is easier to predict than words. Perplexity without them: {without}."
        ),
        "document-ends": (
            "{rate} of the tokens are the <eos> of a document{lines}, and easy to predict. Perplexity without them: "
            "{without}."
        ),
        "ties": "{lowest} is lowest, but chance alone may put {others} above it: they tie.",
        "no-intervals": "There are no intervals: {units} {are} too few to say how far other text would move a change.",
        "rough-intervals": "The intervals are rough, and rather too narrow, from only {units}.",
        "memory-of-no-use": (
            "{name} does not help: on {split} {others} is best, so {weight} is {value}, which switches it off."
        ),
        "learning-of-no-use": (
            "Learning from what was scored does not help: on {split} a rate of 0 is best, so nothing is learned."
        ),
        "learning-diverged": (
            "With rate {rate} learning diverged at token {token} of {split}; what was scored until then is in the "
            "figures. From there the weights of training go on with rate {slower}."
        ),
        "memory-costs": "{name} does not help on {split}: perplexity is {with} with it and {without} without.",
        "memory-hardly-needed": (
            "{name} is hardly needed: the lowest {weight}{above} that was tried, {value}, gains {gain} on {split}."
        ),
        "unsure-learned-weight": (
            "A learned {name} does not surely gain on {parts} held-out parts of {split} (perplexity {change}). One "
            "{name} for all ({one}) is read."
        ),
        "too-short-to-learn": (
            "{split} is too short to learn {name} ({tokens} tokens): one for all ({one}) is read.{searches}"
        ),
        "edge-of-grid": "The best {best}{of} {lies}.",
        "more-memory-gains": "{row} still gained {gain} on {split} by the last doubling of {over}, to {amount}.",
        "still-falling": (
            "Validation perplexity was still falling late in the run ({first} at step {before}; lowest {lowest} at "
            "step {step})."
        ),
        "too-short": f"Train longer ({LONGER}): a gain of memory shrinks as the model learns.",
        "unknown-rate": (
            "{rate} of the tokens of {split} are <unk>, which is easier to predict than the words behind it."
        ),
        "unknown-rates": (
            "{a} of A's tokens and {b} of B's are <unk>, which is easier to predict than the words behind it."
        ),
        "seeds-tie-with-counting": "{label}: {rows} {are} not surely better than counting in the same text, by the mean.",
    },
    NOTE: {
        "more-memory-gains-on-scored": (
            "{row} still gained {gain} on {split} by the last doubling of {over}, to {amount}. Nothing was tuned: "
            "choose it on another split."
        ),
        "compared-with": "Changes are against {first}, {model} {how}.",
        "intervals": (
            "In brackets: {confidence} intervals from {samples} resamples of {units}. They say how far other text of "
            "this kind may move a change; for other trainings see --seeds."
        ),
        "trigram": "Counting in the training text alone has perplexity {limit}{new}.",
        "counted-orders": "Counting with n-grams of other orders gives {rows}.",
        "counted-texts": "Counting is a trigram of all the text that a row may read. {texts}.",
        "learned-weight": (
            "{name} is learned, on average {mean}. On {parts} held-out parts of {split} it changes perplexity by "
            "{change} against one {name} for all ({one})."
        ),
        "pointers-followed": "{share} of the tokens were searched for; the others followed pointers.",
        "searches-made": "{share} of the tokens were searched for, where most gain was expected.",
        "worth-of-searches": (
            "With searches for {share} of the tokens alone, perplexity is {perplexity} (searched={searched})."
        ),
        "against-baseline": "{row} against {first} of the baseline, token by token: perplexity {ratio}{interval}.",
        "twin": "The twin of {model} without memory, its fair baseline: {twin}.",
        "train-twin": (
            "A fair baseline is its twin, alike but for the memory: {command}. Name its report with --baseline."
        ),
        "matched-text": (
            "Text that was read before comes again, token for token: {shares}. Outside matches of {length}, "
            "perplexity is: {rows}."
        ),
        "repeated-text": "{share} of the tokens are in paragraphs that are also in {texts}.",
        "probe": "{summary}.",
        "learned-while-scored": (
            "{what} learned from each {segment} tokens once they were scored ({numbers}){until}.{plain}"
        ),
        "open-book": (
            "Passages of {book} stand before each context: {passages}, of {length} tokens at the most, found by {by} "
            "anew every {stride} tokens ({share} of these strides found none). The model read {read} tokens for each "
            "that is scored, without a book {plain}."
        ),
        "conditions-hold": (
            "Checked at {positions} positions of this run: other text afterwards changes no score, and "
            "probabilities add up to 1. Each token is scored once, before anything learns it."
        ),
        "memory-words": "{words}.",
        "word-perplexity": (
            "Perplexity of tokens depends on the vocabulary. Between vocabularies compare bits/char, or word "
            "perplexity, exp(nats a word)."
        ),
        "plan": "{line}.",
        "passes": "The model read its text for {passes}, in whole batches.",
        "never-validated": "No validation split says when it is enough.",
        "validated-once": (
            "It was validated once only, at step {step}; --set valid_every=N tells whether the loss still falls."
        ),
        "fell-with-rate": (
            "Validation perplexity fell as the learning rate did ({first} at step {before}; lowest {lowest} at step "
            "{step}). After so many passes more would gain little."
        ),
        "lowest-before-end": (
            "Validation perplexity was lowest at step {step} ({lowest}), whose weights are kept; at the end {second}."
        ),
        "settled": (
            "Validation perplexity fell by less than 1% at the end ({first} at step {before}, {second} at step "
            "{last}). More steps would gain little."
        ),
    },
}
"""Sentences by code, the most severe first: the order of remarks."""
SHORT = {
    "tuned-on-scored": "tuned on {split}",
    "undertrained": "undertrained",
    "uneven-valid": "valid is {harder}",
}
"""Short forms of some for titles."""
CODES = [code for texts in SENTENCES.values() for code in texts]

REPORT: Sequence[Condition] = (
    gains.gate_gains_nothing,
    gains.counting_control,
    gains.compared_with,
    gains.intervals,
    gains.ties,
    gains.undertrained_model,
    gains.learned_weight,
    gains.pointers_followed,
    gains.counted_texts,
    gains.counted_orders,
    tuning.tuned_on_scored,
    tuning.tuned_numbers,
    tuning.more_gains_on_scored,
    scored_text.training_text,
    scored_text.own_text,
    scored_text.uneven_valid,
    scored_text.other_form,
    scored_text.unknown_tokens,
    scored_text.document_ends,
    scored_text.repeated_text,
    scored_text.matched_text,
    scored_text.adaptation,
    scored_text.open_book,
    scored_text.conditions,
    scored_text.memory_words,
    scored_text.word_perplexity,
)
"""Conditions on the content of `metrics.json`."""
MODEL = (tuning.long_enough, scored_text.unknown_rates)
"""Conditions on the metrics of a model, with the `unknown_rate` of its validation `split`."""
COMPARISON = (gains.intervals, scored_text.unknown_rates)
"""Conditions on a comparison of two reports."""
SEEDS = (gains.over_seeds, scored_text.unknown_rates)
"""Conditions on a comparison of groups of seeds, each with its `label`."""


def remarks_on(conditions: Sequence[Condition], figures: Figures) -> list[Remark]:
    """All remarks whose conditions hold, in the order of `SENTENCES`."""
    result = [
        remark(code, values) for condition in conditions for code, values in condition(figures)
    ]
    return sorted(result, key=lambda item: CODES.index(item.code))


def remark(code: str, values: Values) -> Remark:
    """The remark of a code, with its sentence filled in."""
    severity, text = next(
        (severity, texts[code]) for severity, texts in SENTENCES.items() if code in texts
    )
    return Remark(code, severity, text.format_map(values), SHORT.get(code, "").format_map(values))
