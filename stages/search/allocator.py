"""How the C library keeps memory that is freed."""

from stages.allocator import set_thresholds

LARGE = 8 << 20


def return_large_blocks() -> None:
    """Let blocks of 8 MB and more go back to the system when they are freed.

    glibc learns from the first large block to keep such memory, once for every thread that Zarr reads
    with: some 100 MB after a few shards. A fixed threshold ends the learning.
    """
    set_thresholds(mapped=LARGE)
