"""Sources of memory at test: for each its settings, free of torch, and its code."""
