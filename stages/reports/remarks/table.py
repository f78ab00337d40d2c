"""Every remark by its code, with its severity and its sentences. The conditions are in the other files of this folder.

A remark has at most two sentences, each of one idea and at most twenty words. Figures and names do not count.
"""

from collections.abc import Sequence

from stages.reports.remarks import Condition, Figures, Remark, Sentence, Severity, Values, gains, scored_text, tuning
from stages.text.form import DIFFER_IN_FORM

NOTE, CAUTION, SEVERE = Severity
LONGER = "--steps or --epochs of train, --minutes of try"
"""Options that train a model for longer."""

SENTENCES = {
    # A report: gains that are not real
    "gate-gains-nothing": Sentence(
        SEVERE, "The gate gains nothing here: perplexity is {open} with neighbours and {shut} without."
    ),
    "worse-than-trigram": Sentence(
        SEVERE,
        "{row} is no better than counting ({limit}){rest}. {remedy}",
    ),
    "worse-than-counting": Sentence(
        SEVERE,
        "{rows} {do} not beat counting{new}: a trigram of what {they} may read is at least as good.",
    ),
    "scored-training-text": Sentence(
        SEVERE, "Train is what {model} learned: this perplexity says nothing of other text (--split test)."
    ),
    "scored-datastore-text": Sentence(
        SEVERE,
        "{made} was made of the text that is scored (--exclude {exclude}): this is no result for new text. "
        "A token may not find {rows}, but finds {others}.",
    ),
    # A report: figures that mean less than they seem to
    "hardly-better-than-trigram": Sentence(
        CAUTION,
        "{row} is hardly better than counting ({limit}){rest}. {remedy}",
    ),
    "unlike-baseline": Sentence(
        CAUTION, "{model} is no fair baseline: the model here differs in more than its memory ({differs})."
    ),
    "no-fair-baseline": Sentence(
        CAUTION,
        "The model learned to be read with memory, so {first} is no fair baseline. "
        "--baseline REPORT puts the row of an ordinary model above.",
    ),
    "undertrained": Sentence(
        CAUTION,
        "{model} was trained for {passes} over its text{falling}. "
        f"A memory usually gains less on a model that is trained for longer ({LONGER}).",
        "undertrained",
    ),
    "uneven-valid": Sentence(
        CAUTION,
        "Valid is {harder}: {first} has perplexity {valid} on valid and {scored} on {split}. "
        "Larger shares (--split 0.8,0.1,0.1 of tokenize or try), or more texts, make them alike.",
        "valid is {harder}",
    ),
    "other-form": Sentence(CAUTION, DIFFER_IN_FORM),
    "unknown-tokens": Sentence(
        CAUTION,
        "{rate} of the tokens are <unk>, which is easier to predict than words. Perplexity without them: {without}.",
    ),
    "document-ends": Sentence(
        CAUTION,
        "{rate} of the tokens are the <eos> of a document{lines}, and easy to predict. "
        "Perplexity without them: {without}.",
    ),
    "ties": Sentence(CAUTION, "{lowest} is lowest, but chance alone may put {others} above it: they tie."),
    "no-intervals": Sentence(
        CAUTION, "There are no intervals: {units} {are} too few to say how far other text would move a change."
    ),
    "rough-intervals": Sentence(CAUTION, "The intervals are rough, and rather too narrow, from only {units}."),
    "memory-of-no-use": Sentence(
        CAUTION, "{name} does not help: on {split} {others} is best, so {weight} is {value}, which switches it off."
    ),
    "memory-costs": Sentence(
        CAUTION, "{name} does not help on {split}: perplexity is {with} with it and {without} without."
    ),
    "memory-hardly-needed": Sentence(
        CAUTION,
        "{name} is hardly needed: the lowest {weight}{above} that was tried, {value}, gains {gain} on {split}.",
    ),
    "unsure-learned-weight": Sentence(
        CAUTION,
        "A learned {name} does not surely gain on {parts} held-out parts of {split} ({change}). "
        "One {name} for all ({one}) is read.",
    ),
    "too-short-to-learn": Sentence(
        CAUTION, "{split} is too short to learn {name} ({tokens} tokens): one for all ({one}) is read.{searches}"
    ),
    "edge-of-grid": Sentence(CAUTION, "The best {best}{of} {lies}."),
    "more-memory-gains": Sentence(
        CAUTION, "{row} still gained {gain} on {split} by the last doubling of {over}, to {amount}."
    ),
    # A report: explanations of figures
    "more-memory-gains-on-scored": Sentence(
        NOTE,
        "{row} still gained {gain} on {split} by the last doubling of {over}, to {amount}. "
        "Nothing was tuned: choose it on another split.",
    ),
    "compared-with": Sentence(NOTE, "Changes are against {first}, {model} {how}."),
    "intervals": Sentence(
        NOTE,
        "In brackets: {confidence} intervals from {samples} resamples of {units}. "
        "They say how far other text of this kind may move a change; for other trainings see --seeds.",
    ),
    "trigram": Sentence(NOTE, "Counting in the training text alone has perplexity {limit}{new}."),
    "counted-orders": Sentence(NOTE, "Counting with n-grams of other orders gives {rows}."),
    "counted-texts": Sentence(NOTE, "Counting is a trigram of all the text that a row may read. {texts}."),
    "learned-weight": Sentence(
        NOTE,
        "{name} is learned, on average {mean}. On {parts} held-out parts of {split} it changes perplexity by {change} "
        "against one {name} for all ({one}).",
    ),
    "pointers-followed": Sentence(NOTE, "{share} of the tokens were searched for; the others followed pointers."),
    "searches-made": Sentence(NOTE, "{share} of the tokens were searched for, where most gain was expected."),
    "worth-of-searches": Sentence(
        NOTE, "With searches for {share} of the tokens alone, perplexity is {perplexity} (searched={searched})."
    ),
    "against-baseline": Sentence(
        NOTE, "{row} against {first} of the baseline, token by token: perplexity {ratio}{interval}."
    ),
    "twin": Sentence(NOTE, "The twin of {model} without memory, its fair baseline: {twin}."),
    "train-twin": Sentence(
        NOTE,
        "A fair baseline is its twin, alike but for the memory: {command}. Name its report with --baseline.",
    ),
    "matched-text": Sentence(
        NOTE,
        "Text that was read before comes again, token for token: {shares}. "
        "Outside matches of {length}, perplexity is: {rows}.",
    ),
    "repeated-text": Sentence(NOTE, "{share} of the tokens are in paragraphs that are also in {texts}."),
    "probe": Sentence(NOTE, "{summary}."),
    "memory-words": Sentence(NOTE, "{words}."),
    "word-perplexity": Sentence(
        NOTE,
        "Perplexity of tokens depends on the vocabulary. "
        "Between vocabularies compare bits/char, or word perplexity, exp(nats a word).",
    ),
    "plan": Sentence(NOTE, "{line}."),
    # A model
    "passes": Sentence(NOTE, "The model read its text for {passes}."),
    "never-validated": Sentence(NOTE, "No validation split says when it is enough."),
    "validated-once": Sentence(
        NOTE, "It was validated once only, at step {step}; --set valid_every=N tells whether the loss still falls."
    ),
    "still-falling": Sentence(
        CAUTION,
        "Validation perplexity was still falling late in the run ({first} at step {before}; lowest {lowest} at step "
        "{step}).",
    ),
    "too-short": Sentence(CAUTION, f"Train longer ({LONGER}): a gain of memory shrinks as the model learns."),
    "fell-with-rate": Sentence(
        NOTE,
        "Validation perplexity fell as the learning rate did ({first} at step {before}; lowest {lowest} at step "
        "{step}). After so many passes more would gain little.",
    ),
    "lowest-before-end": Sentence(
        NOTE,
        "Validation perplexity was lowest at step {step} ({lowest}), whose weights are kept; at the end {second}.",
    ),
    "settled": Sentence(
        NOTE,
        "Validation perplexity fell by less than 1% at the end ({first} at step {before}, {second} at step {last}). "
        "More steps would gain little.",
    ),
    # A comparison, and several seeds
    "unknown-rate": Sentence(
        CAUTION, "{rate} of the tokens of {split} are <unk>, which is easier to predict than the words behind it."
    ),
    "unknown-rates": Sentence(
        CAUTION,
        "{a} of A's tokens and {b} of B's are <unk>, which is easier to predict than the words behind it.",
    ),
    "seeds-worse-than-counting": Sentence(
        SEVERE, "{label}: {rows} {do} not beat counting in the same text, by the mean."
    ),
    "seeds-tie-with-counting": Sentence(
        CAUTION, "{label}: {rows} {are} hardly better than counting in the same text, by the mean."
    ),
}

REPORT: Sequence[Condition] = (
    gains.gate_gains_nothing,
    gains.against_counting,
    gains.compared_with,
    gains.intervals,
    gains.ties,
    gains.undertrained_model,
    gains.learned_weight,
    gains.pointers_followed,
    gains.counted_texts,
    gains.counted_orders,
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
    """All remarks whose conditions hold, the most severe first, then in the order of `SENTENCES`."""
    order = list(SENTENCES)
    made = [remark(code, values) for condition in conditions for code, values in condition(figures)]
    return sorted(made, key=lambda one: (-one.severity, order.index(one.code)))


def remark(code: str, values: Values) -> Remark:
    """The remark of a code, with its sentence filled in."""
    severity, text, short = SENTENCES[code]
    return Remark(code, severity, text.format_map(values), short.format_map(values))
