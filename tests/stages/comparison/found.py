"""What a comparison finds, small, for pages and texts."""

from typing import Any

EVIL = "<script>alert('x')</script>"


def group(tokens: int, difference: float, interval: list[float] | None) -> dict[str, Any]:
    """A bucket of tokens."""
    means = {"nll_a": 3.0, "nll_b": 3.0 + difference, "difference": difference}
    return {
        "tokens": tokens,
        **means,
        "interval": interval,
        "won": tokens // 2,
        "lost": tokens - tokens // 2,
    }


def top(difference: float, text: str = " hall") -> dict[str, Any]:
    """A token that one of both wins."""
    place = {"token": 7, "document": 1, "position": 7, "gate_b": 0.25}
    scores = {"log_p_a": -4.0, "log_p_b": -4.0 - difference, "difference": difference}
    return {
        **place,
        **scores,
        "name": "a.txt",
        "before": f"the {EVIL} of the",
        "text": text,
        "after": " & beyond",
    }


def side(row: str, perplexity: float) -> dict[str, Any]:
    """One of the two reports."""
    names = {
        "reference": f"report/{row}",
        "model": "model/0123456789ab",
        "method": "lm",
        "tokens": "tokens/0123456789ab",
    }
    return {
        **names,
        "row": row,
        "nll": 4.0,
        "perplexity": perplexity,
        "against_counting": {"perplexity": perplexity},
        "bits_per_character": 2.0,
        "word_perplexity": 9.0,
    }


FOUND: dict[str, Any] = {
    **{
        "a": side("plain", 80.0),
        "b": side("knn-lm", 72.0),
        "reading": "final",
        "split": "test",
        "score": "all",
    },
    **{"paired_on": "tokens", "unknown_rate": 0.0, **group(1234, -0.1, [-0.15, -0.05])},
    **{"won_share": 0.6, "lost_share": 0.4},
    **{"perplexity_ratio": 0.9, "perplexity_ratio_interval": [0.86, 0.95]},
    "bootstrap": {
        **{"samples": 100, "confidence": 0.95, "seed": 0, "unit": "document", "block_tokens": None},
        **{"units": 12, "units_won": 9},
    },
    "by_frequency": {
        **{"counted_in": "train", "corpus": "tokens/0123456789ab"},
        "buckets": [
            {"more_than": 10, "at_most": None, **group(1000, -0.2, [-0.3, -0.1])},
            {"more_than": 0, "at_most": 10, **group(234, 0.3, None)},
        ],
    },
    "by_position": [
        {"from": 0, "to": 15, **group(300, 0.1, [-0.1, 0.3])},
        {"from": 16, "to": 31, **group(934, -0.2, None)},
    ],
    **{"most_won": [top(-3.5), top(-2.0, "\n")], "most_lost": [top(1.5)]},
}
