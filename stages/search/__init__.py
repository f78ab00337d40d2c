"""Nearest neighbours among stored keys: FAISS indexes, grouped IVF search and exact search behind
one interface.
"""

KINDS = ("flat", "ivf-flat", "ivf-pq", "hnsw")
"""Named kinds of index; all others are FAISS factory strings."""
EXACT = "exact"
"""The kind of index that is built from tokens alone, and finds exact matches; see
`stages.suffixes`.
"""
