"""Control tokens of a pretrained model that a text spells out."""

import numpy as np

from stages.numbers import joined
from stages.reporting import Reporter
from stages.text.tokenizer import TextTokenizer

MOST_NAMED = 5
"""Most control tokens that a message names."""


def warn_of_control_tokens(
    split: str, counts: np.ndarray, tokenizer: TextTokenizer, reporter: Reporter
) -> None:
    """Warn of control tokens that a text spells out: the model reads them as such.

    Args:
        counts: occurrences of each token of a split, without those that end documents, int64 [V].
    """
    spelled = {token: int(counts[id]) for id, token in tokenizer.control_tokens.items()}
    named = [f"{token} {count:,} times" for token, count in spelled.items() if count > 0]
    if named:
        reporter.warning(
            f"the text of {split} spells control tokens of the model, which reads them as such, as "
            f"transformers does: {joined(named[:MOST_NAMED])}. Change the text if they are no part of it."
        )
