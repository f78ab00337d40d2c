"""How the C library keeps memory that is freed."""

from stages.allocator import set_thresholds

LARGE, PIECE = 8 << 20, 2 << 20
"""Bytes of blocks that are returned; PIECE: where lists are read piece by piece, and little is kept between them."""


def return_large_blocks(size: int = LARGE) -> None:
    """Let blocks of 8 MB and more, or of another size, go back to the system when they are freed.

    glibc learns from the first large block to keep such memory, once for every thread that Zarr reads
    with: some 100 MB after a few shards. A fixed threshold ends the learning.
    """
    set_thresholds(mapped=size)
