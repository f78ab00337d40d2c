"""When the C library returns memory that is freed to the system."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def set_thresholds(*, mapped: int, trimmed: int | None = None) -> None:
    """Set glibc's thresholds, in bytes; does nothing on other C libraries.

    Args:
        mapped: blocks of this size are returned as soon as they are freed (`M_MMAP_THRESHOLD`).
        trimmed: free memory at the top of the heap is returned from this size on (`M_TRIM_THRESHOLD`).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform.startswith("linux") else None
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, mapped)
        if trimmed is not None:
            mallopt(M_TRIM_THRESHOLD, trimmed)


LARGE, PIECE = 8 << 20, 2 << 20
"""Bytes of blocks that are returned; PIECE: where lists are read piece by piece, and little is kept between them."""


def return_large_blocks(size: int = LARGE) -> None:
    """Let blocks of 8 MB and more, or of another size, go back to the system when they are freed.

    glibc learns from the first large block to keep such memory, once for every thread that Zarr reads
    with: some 100 MB after a few shards. A fixed threshold ends the learning.
    """
    set_thresholds(mapped=size)
