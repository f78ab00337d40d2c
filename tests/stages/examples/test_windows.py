import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.errors import UsageError
from stages.examples.windows import Window, document_windows, own_windows, windows


@st.composite
def settings(draw):
    context = draw(st.integers(1, 12))
    stride = draw(st.integers(1, context))
    total = draw(st.integers(0, 60))
    start = draw(st.integers(0, total))
    return total, context, stride, start, draw(st.integers(start, total))


def first_window_that_holds(token, total, context, stride):
    """The contract's definition, by search."""
    number = 0
    while not number * stride <= token < min(number * stride + context, total):
        number += 1
    return number


@given(settings())
def test_each_token_is_scored_once_by_the_first_window_that_holds_it(case):
    total, context, stride, _, _ = case
    scored = [
        (token, w.start)
        for w in windows(total, context, stride)
        for token in range(w.scored_from, w.stop)
    ]
    assert scored == [
        (token, stride * first_window_that_holds(token, total, context, stride))
        for token in range(total)
    ]


@given(settings())
def test_after_the_first_window_a_token_has_context_minus_stride_inputs_before_it(case):
    total, context, stride, _, _ = case
    for w in windows(total, context, stride)[1:]:
        assert w.scored_from - w.start >= context - stride


@given(settings())
def test_only_the_last_window_may_be_short_and_none_is_moved(case):
    total, context, stride, _, _ = case
    made = windows(total, context, stride)
    assert all(w.stop - w.start == context for w in made[:-1])
    assert [w.start for w in made] == [stride * i for i in range(len(made))]


@given(settings())
def test_a_range_keeps_the_windows_of_the_whole_split(case):
    total, context, stride, start, stop = case
    assert windows(total, context, stride, start, stop) == [
        w for w in windows(total, context, stride) if max(start, w.scored_from) < min(stop, w.stop)
    ]


def test_the_example_of_a_split_of_ten():
    assert windows(10, context=4, stride=3) == [Window(0, 4, 0), Window(3, 7, 4), Window(6, 10, 7)]


@pytest.mark.parametrize("stride", [0, -1, 5])
def test_a_stride_outside_the_context_is_refused(stride):
    with pytest.raises(UsageError, match="from 1 to the context, 4"):
        windows(10, context=4, stride=stride)


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (4, 3), (0, 11)])
def test_a_range_outside_the_split_is_refused(start, stop):
    with pytest.raises(UsageError, match="not inside a split of 10"):
        windows(10, 4, 4, start, stop)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 5), st.data())
def test_document_windows_are_those_of_each_document_alone(lengths, context, data):
    offsets = np.cumsum([0, *lengths])
    stride = data.draw(st.integers(1, context))
    start = data.draw(st.integers(0, offsets[-1]))
    stop = data.draw(st.integers(start, offsets[-1]))
    alone = [
        Window(w.start + begin, w.stop + begin, w.scored_from + begin)
        for begin, length in zip(offsets.tolist(), lengths, strict=False)
        for w in windows(length, context, stride)
    ]
    assert document_windows(offsets, context, stride, start, stop) == [
        w for w in alone if max(start, w.scored_from) < min(stop, w.stop)
    ]


@given(settings())
def test_a_token_of_its_own_window_has_the_inputs_before_it_alone(case):
    total, context, _, start, stop = case
    made = own_windows(context, start, stop)
    assert [(w.scored_from, w.stop) for w in made] == [
        (token, token + 1) for token in range(start, stop)
    ]
    assert all(w.stop - w.start == min(context, w.stop) for w in made)
    later = [w for w in windows(total, context, 1, start, stop) if w.start > 0]
    assert later == [w for w in made if w.start > 0]


@given(settings(), st.sets(st.integers(1, 59)))
def test_own_windows_end_where_documents_begin(case, cuts):
    total, context, _, start, stop = case
    offsets = np.array([0, *sorted(cut for cut in cuts if cut < total), total])
    for w in own_windows(context, start, stop, offsets):
        begin = offsets[offsets <= w.scored_from].max()
        assert w.start == max(begin, w.stop - context)
