"""Contexts of a text in sorted order: a suffix array of the text read backwards. It knows arrays alone."""

AT_ONCE = 1 << 20
"""Tokens that are read at a time."""
IN_MEMORY = 1 << 25
"""Bytes of an array up to which it is held in memory; a larger one lies in a temporary file, and is mapped."""
