"""Nearest neighbours among stored keys: FAISS indexes, grouped IVF search and exact search behind one interface."""

KINDS = ("flat", "ivf-flat", "ivf-pq", "hnsw")
"""Kinds of index that have a name; others are factory strings of FAISS."""
EXACT = "exact"
"""The kind that is made of tokens alone, and finds exact matches; see `stages.suffixes`."""
