"""In-batch memory in Triton: against the slow oracle and whole matrices, in float64."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.memory.in_batch import log_sums
from stages.memory.in_batch.visible import Visible, earlier, others
from tests.builders.in_batch import KINDS, batch, both_ways, own_memory, segments
from tests.builders.visible import visibles
from tests.kernels import DEVICE, needs_triton
from tests.oracles import in_batch as oracle

pytestmark = [
    needs_triton,
    pytest.mark.filterwarnings(
        "ignore::RuntimeWarning"
    ),  # the interpreter's numpy: -inf, and what overflows unseen
]


@pytest.fixture(scope="module", autouse=True)
def small_tiles() -> Iterator[None]:
    """Tiles of 16 cells, so that few positions are many tiles."""
    from stages.memory.in_batch import fused

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log_sums, "runs_triton", lambda device: True)
        patched.setattr(fused, "ROWS", 16)
        patched.setattr(fused, "KEYS", {2: 16, 4: 16})
        yield


def in_float32(queries, keys, targets, values, visible, scale):
    """The public function, of numbers as a GPU has them, and on one where there is one."""
    same = queries is keys
    queries, keys, targets, values = (
        part.to(DEVICE) for part in (queries.float(), keys.float(), targets, values)
    )
    sums = log_sums.in_batch_log_sums(
        queries, queries if same else keys, targets, values, visible, scale
    )
    return tuple(one.cpu() for one in sums)


def assert_same(got, want):
    for one, right in zip(got, want, strict=True):
        torch.testing.assert_close(one.double(), right, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("lengths", "width"), [([1], 3), ([16, 16], 16), ([19, 1, 14, 3], 21)], ids=str
)
def test_values_and_gradients_of_a_batch_that_is_its_own_memory(kind, lengths, width):
    visible = segments(lengths, kind)
    hidden, _, ids, _ = batch(sum(lengths), 1, width)
    assert_same(
        own_memory(in_float32, hidden, ids, visible),
        own_memory(oracle.dense_log_sums, hidden, ids, visible),
    )


@given(visibles(most=40), st.integers(1, 4), st.sampled_from([1, 5, 17]))
@settings(deadline=None, max_examples=12)
def test_any_memory(case, vocabulary, width):
    visible, keys = case
    made = batch(len(visible), keys, width, vocabulary=vocabulary)
    got = both_ways(in_float32, *made, visible)
    assert_same(got, both_ways(oracle.dense_log_sums, *made, visible))
    for one, right in zip(got, oracle.log_sums(*made, visible, 0.7), strict=False):
        assert one.tolist() == pytest.approx(right, rel=1e-5, abs=1e-5)


def test_keys_wider_than_a_program_writes():
    """270 numbers: two parts are written, five are read."""
    made = batch(3, 20, 270)
    visible = others(
        *(torch.tensor([bound] * 3) for bound in (4, 9)), torch.arange(4, 7), 20, local=True
    )
    assert_same(
        both_ways(in_float32, *made, visible, 0.1),
        both_ways(oracle.dense_log_sums, *made, visible, 0.1),
    )


def test_documents_end_memory():
    """Each position reads back to its own document's beginning, or the segment's."""
    starts = torch.tensor([0] * 7 + [7] * 20 + [27] * 13)
    visible = earlier(torch.maximum(starts, torch.arange(40) // 25 * 25), torch.arange(40))
    made = batch(40, 40, 8)
    assert_same(
        both_ways(in_float32, *made, visible), both_ways(oracle.dense_log_sums, *made, visible)
    )


@pytest.mark.parametrize("n", [0, 5])
def test_nothing_is_read(n):
    nothing = torch.zeros(n, dtype=torch.int64)
    target, total, grad_queries, grad_keys = both_ways(
        in_float32, *batch(n, 5), earlier(nothing, nothing)
    )
    assert target.isneginf().all() and total.isneginf().all()
    assert not grad_queries.any() and not grad_keys.any()


def test_no_key_holds_the_target():
    queries, keys, _, values = batch(20, 20)
    got = both_ways(in_float32, queries, keys, values + 10, values, segments([20], "long"))
    assert got[0].isneginf().all()
    assert_same(
        got,
        both_ways(
            oracle.dense_log_sums, queries, keys, values + 10, values, segments([20], "long")
        ),
    )


def test_a_gradient_that_is_no_number_is_left_out_where_nothing_is_read():
    queries, keys, targets, values = batch(6, 6, vocabulary=1)
    queries.requires_grad_()
    target, total = in_float32(queries, keys, targets, values, segments([3, 3], "local"), 1.0)
    upstream = torch.tensor([torch.nan, 1, 1, torch.nan, 1, 1])
    (grad,) = torch.autograd.grad((target, total), queries, (upstream, upstream))
    assert grad.isfinite().all() and not grad[[0, 3]].any()


def test_large_scores_and_what_overflows_unseen_change_nothing():
    visible = Visible(*(torch.tensor([bound] * 3) for bound in (1, 5, 2, 4)))
    queries, keys, *ids = batch(3, 6, vocabulary=1)
    queries[:, 0], keys[:, 0] = 1e30, 0
    want = both_ways(in_float32, queries, keys, *ids, visible)
    keys[2, 0] = 1e30
    assert_same(
        both_ways(in_float32, queries, keys, *ids, visible), [part.double() for part in want]
    )
    hidden, ids = (
        torch.full((20, 1), 100.0, dtype=torch.float64),
        torch.zeros(20, dtype=torch.int64),
    )
    _, total, grad = own_memory(in_float32, hidden, ids, segments([20], "long"))
    assert total[1:].tolist() == pytest.approx(
        [0.7e4 + torch.tensor(n).log().item() for n in range(1, 20)]
    )
    assert grad.isfinite().all()


@pytest.mark.parametrize("constant", ["queries", "keys"])
def test_constants_have_no_gradient(constant):
    queries, keys, *ids = batch(20, 20)
    learned = keys if constant == "queries" else queries
    learned.requires_grad_()
    both = (in_float32, oracle.dense_log_sums)
    totals = [
        function(queries, keys, *ids, segments([20], "long"), 0.7)[1][1:].sum() for function in both
    ]
    got, want = (torch.autograd.grad(total, learned)[0] for total in totals)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=2e-5)


IN_BF16 = pytest.param(
    torch.bfloat16,
    marks=pytest.mark.skipif(
        DEVICE == "cpu", reason="Triton's interpreter multiplies none in bf16"
    ),
)


@pytest.mark.parametrize("dtype", [torch.float16, IN_BF16])
def test_products_of_half_precision_are_close_to_fp32(dtype):
    visible = segments([20, 25], "others+local")
    queries, _, ids, _ = batch(45, 1, width=16, dtype=torch.float32)
    exact = own_memory(in_float32, queries, ids, visible)
    with torch.autocast(DEVICE, dtype=dtype):
        half = own_memory(in_float32, queries, ids, visible)
    assert {one.dtype for one in half} == {torch.float32}
    torch.testing.assert_close(half[1], exact[1], rtol=0.01, atol=0.03)
    assert 0 < (half[2] - exact[2]).norm() < 0.01 * exact[2].norm()


@needs_triton
@pytest.mark.endurance
def test_kernels_compile_for_gpus_and_fit_their_memory():
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.kernels"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lines = ended.stdout.splitlines()
    assert len(lines) == 52 and not [line for line in lines if "NOT" in line]
