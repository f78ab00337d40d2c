"""Text that a model writes, with any composition of memories, and the passages that carried it."""
