from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stages.text.packing import document_spans, same_document, sharing


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(1, 5), st.integers(0, 99))
def test_as_a_loop_over_tokens_says(lengths: list[int], length: int, seed: int) -> None:
    offsets = np.cumsum([0, *lengths])
    document = np.repeat(np.arange(len(lengths)), lengths)
    segments = len(document) // length
    held = [set(document[start : start + length].tolist()) for start in range(0, segments * length, length)]
    spans = document_spans(offsets, length, segments)
    assert spans.tolist() == [[min(documents), max(documents)] for documents in held]
    for own, (start, stop) in enumerate(sharing(spans)):
        assert [other for other in range(segments) if held[other] & held[own]] == list(range(start, stop))
    if segments > 1:
        order = np.random.default_rng(seed).permutation(segments)
        steps = [bool(held[a] & held[b]) for a, b in pairwise(order)]
        assert same_document(spans, order) == np.mean(steps)
