"""How the C library keeps memory that is freed."""

import ctypes
import sys

M_MMAP_THRESHOLD = -3
LARGE = 8 << 20


def return_large_blocks() -> None:
    """Let blocks of 8 MB and more go back to the system when they are freed.

    glibc learns from the first large block to keep such memory, once for every thread that Zarr reads
    with: some 100 MB after a few shards. A fixed threshold ends the learning. Does nothing on other
    C libraries.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform.startswith("linux") else None
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE)
