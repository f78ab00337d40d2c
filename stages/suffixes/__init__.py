"""Contexts of a text in sorted order: a suffix array of the reversed text. The package works on
arrays.
"""

AT_ONCE = 1 << 20
"""Tokens that are read at a time."""
IN_MEMORY = 1 << 25
"""Largest array in bytes that is held in memory; a larger one is a memory-mapped temporary file."""
