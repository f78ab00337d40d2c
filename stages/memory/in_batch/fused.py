"""In-batch memory on a GPU: one Triton kernel each for log-sums, gradients of queries, and
gradients of keys.

Shapes: N queries, K keys, d width. A program handles ROWS queries or KEYS keys. It reads DEPTH
columns of d at a time, and writes OUT of them. Scores and log-sums use base 2, but gradients are
with respect to natural scores. Besides arguments and results, a call stores only a few numbers for
each query: scores never leave the kernel.

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
        *inputs, sums = ctx.saved_tensors
        # An empty sum has no gradient, whatever the incoming gradient is.
        upstream = torch.stack((grad_target, grad_total)).float()
        upstream = upstream.masked_fill_(sums.isneginf(), 0).contiguous()
        # exp2(score - (-inf)) would be infinite, and infinity times 0 is NaN.
        arguments = (*inputs, sums.nan_to_num(neginf=0.0), upstream)

        gradients: list[Tensor | None] = [None, None]
        kernels = ((_query_gradients, "ROWS"), (_key_gradients, "KEYS"))
        for index, (kernel, tile) in enumerate(kernels):
            if not ctx.needs_input_grad[index]:
                continue
            count, width = inputs[index].shape
            result = torch.empty_like(inputs[index], dtype=torch.float32)
            columns = output_columns(width)
            grid = (triton.cdiv(count, ctx.sizes[tile]), triton.cdiv(width, columns))
            if count:
                kernel[grid](*arguments, result, *ctx.numbers, OUT=columns, **ctx.sizes)
            gradients[index] = result.to(ctx.dtypes[index])
        no_gradients = (None,) * 5
        return *gradients, *no_gradients


def sizes(width: int, dtype: torch.dtype, roomy: bool) -> dict[str, int]:
    """Tile sizes of the kernels. `roomy`: whether shared memory holds the next tile as well."""
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
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    start, stop, hole_start, hole_stop = _bounds_of(bounds, rows, n)
    target_peak = tl.full([ROWS], float("-inf"), tl.float32)
    total_peak = tl.full([ROWS], float("-inf"), tl.float32)
    target_sum = tl.zeros([ROWS], tl.float32)
    total_sum = tl.zeros([ROWS], tl.float32)
    for first in range(
        tl.min(tl.where(start < stop, start, m)), tl.max(tl.where(start < stop, stop, 0)), KEYS
    ):
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
    queries, keys, targets, values, bounds, sums, upstream, into, n, m, scale,
    OUT: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    out = tl.program_id(1) * OUT + tl.arange(0, OUT)
    start, stop, _, _ = _bounds_of(bounds, rows, n)
    total = tl.zeros([ROWS, OUT], tl.float32)
    for first in range(
        tl.min(tl.where(start < stop, start, m)), tl.max(tl.where(start < stop, stop, 0)), KEYS
    ):
        columns = first + tl.arange(0, KEYS)
        gradient = _gradient(
            queries,
            keys,
            targets,
            values,
            bounds,
            sums,
            upstream,
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
    tl.store(
        _places(into, rows, out, WIDTH),
        total * scale,
        mask=(rows < n)[:, None] & (out < WIDTH)[None, :],
    )


@triton.jit
def _key_gradients(
    queries, keys, targets, values, bounds, sums, upstream, into, n, m, scale,
    OUT: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    begin = tl.program_id(0) * KEYS
    columns = begin + tl.arange(0, KEYS)
    out = tl.program_id(1) * OUT + tl.arange(0, OUT)
    first, last = _readers(bounds, begin, begin + KEYS, n)
    total = tl.zeros([KEYS, OUT], tl.float32)
    for row in range(first, last, ROWS):
        rows = row + tl.arange(0, ROWS)
        gradient = _gradient(
            queries,
            keys,
            targets,
            values,
            bounds,
            sums,
            upstream,
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
    tl.store(
        _places(into, columns, out, WIDTH),
        total * scale,
        mask=(columns < m)[:, None] & (out < WIDTH)[None, :],
    )


@triton.jit
def _readers(bounds, begin, end, n):
    """Range of the queries that may read a key of [begin, end): the first, and one past the last."""
    first = n
    last = 0
    for base in range(0, n, BOUNDS):
        rows = base + tl.arange(0, BOUNDS)
        start, stop, _, _ = _bounds_of(bounds, rows, n)
        reads = (tl.maximum(start, begin) < tl.minimum(stop, end)) & (rows < n)
        first = tl.minimum(first, tl.min(tl.where(reads, rows, n)))
        last = tl.maximum(last, tl.max(tl.where(reads, rows + 1, 0)))
    return first, last


@triton.jit
def _gradient(
    queries, keys, targets, values, bounds, sums, upstream, rows, columns, n, m, scale,
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
    target_upstream = _numbers(upstream, rows, n)
    total_upstream = _numbers(upstream + n, rows, n)
    of_total = tl.exp2(scores - total[:, None]) * total_upstream[:, None]
    of_target = tl.exp2(scores - target[:, None]) * target_upstream[:, None]
    gradient = tl.where(visible, of_total, 0.0)
    return gradient + tl.where(is_target, of_target, 0.0)


@triton.jit
def _scores(
    queries, keys, rows, columns, n, m, scale,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
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
    shift = tl.where(best == float("-inf"), 0.0, best)
    return best, total * tl.exp2(peak - shift) + tl.sum(tl.exp2(scores - shift[:, None]), 1)


@triton.jit
def _visible(columns, start, stop, hole_start, hole_stop):
    key = columns[None, :]
    in_hole = (key >= hole_start[:, None]) & (key < hole_stop[:, None])
    return (key >= start[:, None]) & (key < stop[:, None]) & (in_hole == 0)


@triton.jit
def _same(targets, values, rows, columns, n, m):
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
    return tl.load(
        _places(matrix, rows, depth, WIDTH), (rows < n)[:, None] & (depth < WIDTH)[None, :], 0.0
    )


@triton.jit
def _places(matrix, rows, depth, WIDTH: tl.constexpr):
    return matrix + rows.to(tl.int64)[:, None] * WIDTH + depth[None, :]
