"""The memory that a training batch makes of itself (TRIME): who reads what, in blocks, with gradients."""
