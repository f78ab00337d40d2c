"""In-batch memory on a GPU: one Triton kernel each for log-sums, gradients of queries, and
gradients of keys.

Shapes: N queries, K keys, d width. A program handles ROWS queries or KEYS keys. It reads DEPTH
columns of d at a time, and writes OUT of them. Scores and log-sums use base 2, but gradients are
with respect to natural scores. Besides arguments and results, a call stores only a few numbers for
each query: scores never leave the kernel.

A kernel takes up to 17 arguments, and hands them on: Triton compiles pointers, numbers and constants,
not objects that could hold several of these. The order is the same everywhere. `queries` [N, d],
`keys` [K, d], `targets` [N], `values` [K], `bounds` [4, N] and `sums` [2, N] are pointers; n is N,
and m is K.

Imported only if Triton is installed. `TRITON_INTERPRET=1` runs the kernels on a CPU, as in the
tests.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd.function import once_differentiable

from stages.memory.in_batch.visible import Visible

BASE_2 = tl.constexpr(math.log2(math.e))
"""Factor from natural logarithms to base 2."""
ROWS = 64
KEYS = {2: 64, 4: 32}
"""Number of queries in a tile, and of keys, by the bytes of a number."""
BOUNDS = tl.constexpr(1024)
"""Number of queries whose bounds a program loads at a time, to find those that read its keys."""


def fused_log_sums(
    queries: Float[Tensor, "N d"],
    keys: Float[Tensor, "K d"],
    targets: Int64[Tensor, " N"],
    values: Int64[Tensor, " K"],
    visible: Visible,
    scale: float,
    dtype: torch.dtype,
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Log-sums over the visible keys that hold the target, and over all visible keys, float32.

    Arguments and worked example are those of `in_batch_log_sums`. Products are computed in `dtype`
    (float32 as three tf32 products) and summed in float32.
    """
    return _FusedLogSums.apply(  # type: ignore[no-untyped-call]
        queries, keys, targets, values, visible, scale, dtype
    )


class _FusedLogSums(torch.autograd.Function):
    """The log-sums of `fused_log_sums`."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor,
        targets: Tensor,
        values: Tensor,
        visible: Visible,
        scale: float,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        """queries [N, d], keys [K, d], targets [N], values [K] -> log-sums of targets and of all
        keys, float32 [N] each.
        """
        bounds = torch.stack((visible.start, visible.stop, visible.hole_start, visible.hole_stop))
        # int32 holds every position of a batch, in half the bytes.
        bounds = bounds.to(queries.device).clamp_(0, len(keys)).int()
        inputs = (
            queries.to(dtype).contiguous(),
            keys.to(dtype).contiguous(),
            targets.int(),
            values.int(),
            bounds,
        )
        ctx.sizes = _sizes_on(queries.device, queries.shape[1], dtype)
        ctx.numbers = (len(queries), len(keys), scale)

        sums = queries.new_empty((2, len(queries)), dtype=torch.float32)
        # A grid of no programs is an error.
        if len(queries):
            grid = (triton.cdiv(len(queries), ctx.sizes["ROWS"]),)
            _log_sums[grid](*inputs, sums, *ctx.numbers, **ctx.sizes)
        ctx.save_for_backward(*inputs, sums)
        ctx.dtypes = (queries.dtype, keys.dtype)
        target, total = sums / BASE_2.value
        return target, total

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad_target: Tensor, grad_total: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the log-sums, [N] each -> those of queries [N, d] and of keys [K, d]."""
        *inputs, sums = ctx.saved_tensors
        # An empty sum has no gradient, whatever the incoming gradient is.
        grad_sums = torch.stack((grad_target, grad_total)).float()  # [2, N]
        grad_sums = grad_sums.masked_fill_(sums.isneginf(), 0).contiguous()
        # exp2(score - (-inf)) would be infinite, and infinity times 0 is NaN.
        arguments = (*inputs, sums.nan_to_num(neginf=0.0), grad_sums)

        gradients: list[Tensor | None] = [None, None]
        kernels = ((_query_gradients, "ROWS"), (_key_gradients, "KEYS"))
        for index, (kernel, tile) in enumerate(kernels):
            if not ctx.needs_input_grad[index]:
                continue
            factor = inputs[index]
            count, width = factor.shape
            gradient = torch.empty_like(factor, dtype=torch.float32)
            columns = output_columns(width)
            grid = (triton.cdiv(count, ctx.sizes[tile]), triton.cdiv(width, columns))
            # A grid of no programs is an error.
            if count:
                kernel[grid](*arguments, gradient, *ctx.numbers, OUT=columns, **ctx.sizes)
            gradients[index] = gradient.to(ctx.dtypes[index])
        no_gradients = (None,) * 5
        return *gradients, *no_gradients


def sizes(width: int, dtype: torch.dtype, roomy: bool) -> dict[str, int]:
    """Tile sizes of the kernels. `roomy`: whether shared memory holds the next tile as well."""
    # A product of tiles takes at least 16 columns, and a power of two.
    padded = max(16, triton.next_power_of_2(width))
    return {
        "WIDTH": width,
        "ROWS": ROWS,
        "KEYS": KEYS.get(dtype.itemsize, 32),
        "DEPTH": padded if padded <= 128 else 64,
        "num_warps": 4 if padded <= 128 else 8,
        "num_stages": 2 if roomy else 1,
    }


def output_columns(width: int) -> int:
    """Number of columns of a gradient that one program writes; each program computes the scores
    again.
    """
    return min(max(16, triton.next_power_of_2(width)), 256)


def _sizes_on(device: torch.device, width: int, dtype: torch.dtype) -> dict[str, int]:
    # Server cards since Hopper (compute capability 9 and 10) have enough shared memory.
    roomy = device.type == "cuda" and torch.cuda.get_device_capability(device)[0] in (9, 10)
    return sizes(width, dtype, roomy)


@triton.jit
def _log_sums(
    queries, keys, targets, values, bounds, sums, n, m, scale,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Write the log-sums of ROWS queries to `sums`: of targets to row 0, of all keys to row 1."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    start, stop, hole_start, hole_stop = _bounds_of(bounds, rows, n)

    # Running sums Σ 2^(score - peak), as in `_LogSums` of `log_sums`.
    target_peak = tl.full([ROWS], float("-inf"), tl.float32)
    total_peak = tl.full([ROWS], float("-inf"), tl.float32)
    target_sum = tl.zeros([ROWS], tl.float32)
    total_sum = tl.zeros([ROWS], tl.float32)

    # The keys that any of the queries reads. Those that read nothing widen the range nowhere.
    first_key = tl.min(tl.where(start < stop, start, m))
    stop_key = tl.max(tl.where(start < stop, stop, 0))
    for first in range(first_key, stop_key, KEYS):
        columns = first + tl.arange(0, KEYS)
        scores = _scores(queries, keys, rows, columns, n, m, scale, WIDTH, ROWS, KEYS, DEPTH)
        visible = _visible(columns, start, stop, hole_start, hole_stop)
        is_target = visible & _same(targets, values, rows, columns, n, m)

        target_scores = tl.where(is_target, scores, float("-inf"))
        total_scores = tl.where(visible, scores, float("-inf"))
        target_peak, target_sum = _added(target_peak, target_sum, target_scores)
        total_peak, total_sum = _added(total_peak, total_sum, total_scores)

    tl.store(sums + rows, target_peak + tl.log2(target_sum), mask=rows < n)
    tl.store(sums + n + rows, total_peak + tl.log2(total_sum), mask=rows < n)


@triton.jit
def _query_gradients(
    queries, keys, targets, values, bounds, sums, grad_sums, into, n, m, scale,
    OUT: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Write OUT columns of the gradients of ROWS queries into `into`, float32 [N, d]: Σ_k gradient of
    the score, times the key.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    out = tl.program_id(1) * OUT + tl.arange(0, OUT)
    start, stop, _, _ = _bounds_of(bounds, rows, n)
    total = tl.zeros([ROWS, OUT], tl.float32)

    first_key = tl.min(tl.where(start < stop, start, m))
    stop_key = tl.max(tl.where(start < stop, stop, 0))
    for first in range(first_key, stop_key, KEYS):
        columns = first + tl.arange(0, KEYS)
        gradient = _gradient(
            queries,
            keys,
            targets,
            values,
            bounds,
            sums,
            grad_sums,
            rows,
            columns,
            n,
            m,
            scale,
            WIDTH,
            ROWS,
            KEYS,
            DEPTH,
        )
        key = _part(keys, columns, out, m, WIDTH)
        total = tl.dot(gradient.to(key.dtype), key, total, input_precision="tf32x3")

    # The scale of the scores is applied once, to the sums.
    in_matrix = (rows < n)[:, None] & (out < WIDTH)[None, :]
    tl.store(_cells(into, rows, out, WIDTH), total * scale, mask=in_matrix)


@triton.jit
def _key_gradients(
    queries, keys, targets, values, bounds, sums, grad_sums, into, n, m, scale,
    OUT: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Write OUT columns of the gradients of KEYS keys into `into`, float32 [K, d]: Σ_q gradient of the
    score, times the query.
    """
    begin = tl.program_id(0) * KEYS
    columns = begin + tl.arange(0, KEYS)
    out = tl.program_id(1) * OUT + tl.arange(0, OUT)
    first_query, stop_query = _readers(bounds, begin, begin + KEYS, n)
    total = tl.zeros([KEYS, OUT], tl.float32)
    for first in range(first_query, stop_query, ROWS):
        rows = first + tl.arange(0, ROWS)
        gradient = _gradient(
            queries,
            keys,
            targets,
            values,
            bounds,
            sums,
            grad_sums,
            rows,
            columns,
            n,
            m,
            scale,
            WIDTH,
            ROWS,
            KEYS,
            DEPTH,
        )
        query = _part(queries, rows, out, n, WIDTH)
        total = tl.dot(tl.trans(gradient.to(query.dtype)), query, total, input_precision="tf32x3")

    in_matrix = (columns < m)[:, None] & (out < WIDTH)[None, :]
    tl.store(_cells(into, columns, out, WIDTH), total * scale, mask=in_matrix)


@triton.jit
def _readers(bounds, begin, end, n):
    """Range of the queries that may read a key of [begin, end): the first, and one past the last."""
    first = n
    last = 0
    for base in range(0, n, BOUNDS):
        rows = base + tl.arange(0, BOUNDS)
        start, stop, _, _ = _bounds_of(bounds, rows, n)
        # Holes are not looked at: a query that reads nothing but hidden keys gets gradient 0.
        overlaps = tl.maximum(start, begin) < tl.minimum(stop, end)
        reads = overlaps & (rows < n)
        first_here = tl.min(tl.where(reads, rows, n))
        last_here = tl.max(tl.where(reads, rows + 1, 0))
        first = tl.minimum(first, first_here)
        last = tl.maximum(last, last_here)
    return first, last


@triton.jit
def _gradient(
    queries, keys, targets, values, bounds, sums, grad_sums, rows, columns, n, m, scale,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Gradient with respect to the natural scores of a tile; 0 where a query does not see a key."""
    start, stop, hole_start, hole_stop = _bounds_of(bounds, rows, n)
    scores = _scores(queries, keys, rows, columns, n, m, scale, WIDTH, ROWS, KEYS, DEPTH)
    visible = _visible(columns, start, stop, hole_start, hole_stop)
    is_target = visible & _same(targets, values, rows, columns, n, m)

    # Both arrays have the numbers of targets first, then those of totals.
    target = _numbers(sums, rows, n)
    total = _numbers(sums + n, rows, n)
    grad_target = _numbers(grad_sums, rows, n)
    grad_total = _numbers(grad_sums + n, rows, n)

    # The gradient of a log-sum in a score is that term's share of the sum.
    of_total = tl.exp2(scores - total[:, None]) * grad_total[:, None]
    of_target = tl.exp2(scores - target[:, None]) * grad_target[:, None]
    gradient = tl.where(visible, of_total, 0.0)
    return gradient + tl.where(is_target, of_target, 0.0)


@triton.jit
def _scores(
    queries, keys, rows, columns, n, m, scale,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Scores of a tile in base 2, float32 [ROWS, KEYS]; the width is read DEPTH columns at a time."""
    products = tl.zeros([ROWS, KEYS], tl.float32)
    for first in range(0, WIDTH, DEPTH):
        depth = first + tl.arange(0, DEPTH)
        query = _part(queries, rows, depth, n, WIDTH)
        key = _part(keys, columns, depth, m, WIDTH)
        products = tl.dot(query, tl.trans(key), products, input_precision="tf32x3")
    return products * (scale * BASE_2)


@triton.jit
def _added(peak, total, scores):
    """Add the scores of a tile to running log-sums: the new peak, and the new Σ 2^(score - peak)."""
    best = tl.maximum(peak, tl.max(scores, 1))
    # -inf - (-inf) would be NaN: a row without keys is shifted by 0.
    shift = tl.where(best == float("-inf"), 0.0, best)
    earlier = total * tl.exp2(peak - shift)
    return best, earlier + tl.sum(tl.exp2(scores - shift[:, None]), 1)


@triton.jit
def _visible(columns, start, stop, hole_start, hole_stop):
    """Whether each query reads each key, [ROWS, KEYS]."""
    key = columns[None, :]
    in_hole = (key >= hole_start[:, None]) & (key < hole_stop[:, None])
    return (key >= start[:, None]) & (key < stop[:, None]) & (in_hole == 0)


@triton.jit
def _same(targets, values, rows, columns, n, m):
    """Whether each key holds the target of each query, [ROWS, KEYS]."""
    target = tl.load(targets + rows, rows < n, 0)
    value = tl.load(values + columns, columns < m, 0)
    return target[:, None] == value[None, :]


@triton.jit
def _bounds_of(bounds, rows, n):
    """Bounds of the keys that each query reads; empty for rows past the last query."""
    in_range = rows < n
    start = tl.load(bounds + rows, in_range, 0)
    stop = tl.load(bounds + n + rows, in_range, 0)
    hole_start = tl.load(bounds + 2 * n + rows, in_range, 0)
    hole_stop = tl.load(bounds + 3 * n + rows, in_range, 0)
    return start, stop, hole_start, hole_stop


@triton.jit
def _numbers(of_rows, rows, n):
    return tl.load(of_rows + rows, rows < n, 0.0)


@triton.jit
def _part(matrix, rows, depth, n, WIDTH: tl.constexpr):
    """Some rows and columns of a matrix [n, WIDTH], 0 outside of it."""
    in_matrix = (rows < n)[:, None] & (depth < WIDTH)[None, :]
    return tl.load(_cells(matrix, rows, depth, WIDTH), in_matrix, 0.0)


@triton.jit
def _cells(matrix, rows, depth, WIDTH: tl.constexpr):
    """Pointers to some rows and columns of a matrix; int64, since it may have over 2^31 cells."""
    return matrix + rows.to(tl.int64)[:, None] * WIDTH + depth[None, :]
