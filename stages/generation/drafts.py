"""Drafts: tokens that are guessed, so that the model reads several positions at once."""

import numpy as np

from stages.generation.session import Text
from stages.inspection.reading import MemoryReader
from stages.retrieval.sources.exact import ExactSource
from stages.suffixes.text import Text as SortedText

DRAFTED = 8
"""Maximum number of tokens in a draft."""
SHORTEST = 2
"""Minimum length of a match whose continuation is drafted, in tokens."""


def draft_exact(reader: MemoryReader, text: Text, most: int) -> list[int]:
    """Draft the tokens that follow the longest match of the text's end in the exact index; none if
    it is too short.

    Drafts do not change the text: each token is drawn as it would be without them.
    Source: Saxena 2023, prompt lookup decoding; Leviathan et al. 2023 (arXiv:2211.17192) with a
    draft that is certain.
    """
    memory = reader.range_reader.memories[ExactSource]
    contexts = memory.contexts
    tokens = text.passage.ids
    ends = np.array([0, len(tokens) + 1])
    # The context of the placeholder behind the text is the text.
    query = SortedText.of(np.append(tokens, 0), ends, contexts.text.vocabulary)
    located = contexts.locate(query, np.array([len(tokens)]))
    match_length = int(located.longest[0])
    if not most or match_length < SHORTEST:
        return []

    # A short match says little of what follows, and each wrong guess costs a reading.
    size = min(most, DRAFTED, match_length)
    start = int(contexts.best(located, 1, hidden=memory.hidden).positions[0, 0])
    if start < 0:
        return []

    # A draft ends with its document: before the next token that is the first of one. The 0 behind
    # the draft stands for such a token, so that one is always there.
    document_places = np.append(contexts.text.lengths[start + 1 : start + size], 0)
    stop = start + 1 + int((document_places == 0).argmax())
    return [int(token) for token in contexts.text.ids[start:stop]]
