"""In-batch memory of training (TRIME): visible keys of each position, and log-sums with gradients,
in blocks.
"""
