"""The pairs of sentences that a memory is made of while a sentence is read. Free of NumPy."""

PAIRS = "pairs"
"""Role of their tokens in an evaluation."""
SPLIT = "train"
"""The split whose pairs are found."""
