"""Kernels in Triton: where tests run them, and whether they compile for a GPU that need not be
there.

`python -m tests.kernels` compiles all; each line has the bytes of shared memory that a program
takes.
"""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest
import torch

from stages.models.devices import device_type

DEVICE = device_type("auto")
"""A GPU, or the CPU, where Triton's interpreter runs the kernels (`tests/conftest.py`)."""
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
FITS = {80: 99 << 10, 90: 227 << 10}
"""Bytes of shared memory that a program may take, by compute capability; 80: also of cards for
desks, 86 and 89.
"""


def compiled(target: int) -> Iterator[tuple[str, int]]:
    """Compile all kernels for a compute capability; a name, and bytes of shared memory."""
    from stages.memory.in_batch import fused
    from stages.models.layers import recurrence_kernels

    numbers = {
        "n": "i32",
        "m": "i32",
        "length": "i32",
        "size": "i32",
        "width": "i32",
        "scale": "fp32",
    }
    ids = dict.fromkeys(("targets", "values", "bounds"), "*i32")
    for kernel in (recurrence_kernels._walk, recurrence_kernels._walk_back):
        known = {"BLOCK": recurrence_kernels.BLOCK, "num_warps": 2}
        yield kernel.__name__, _shared_memory(kernel, numbers, known, target)
    for kernel in (fused._log_sums, fused._query_gradients, fused._key_gradients):
        for name, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
            for width in (16, 128, 512, 1024):
                known = fused.sizes(width, dtype, roomy=target == 90) | {
                    "OUT": fused.output_columns(width)
                }
                types = numbers | ids | {"queries": f"*{name}", "keys": f"*{name}"}
                yield (
                    f"{kernel.__name__} {name} {width}",
                    _shared_memory(kernel, types, known, target),
                )


def _shared_memory(function, types, known, target):
    """Compile a kernel.

    Args:
        types: of arguments; others are float32 in memory.
        known: arguments that are constants, and options of the compiler.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = function.arg_names
    signature = {name: "constexpr" if name in known else types.get(name, "*fp32") for name in names}
    constants = {(names.index(name),): value for name, value in known.items() if name in names}
    options = {name: value for name, value in known.items() if name.startswith("num_")}
    source = ASTSource(function, signature, constexprs=constants)
    return triton.compile(
        source, target=GPUTarget("cuda", target, 32), options=options
    ).metadata.shared


if __name__ == "__main__":
    for capability, most in FITS.items():
        for named, taken in compiled(capability):
            print(capability, named, taken, "" if taken <= most else "DOES NOT FIT")
