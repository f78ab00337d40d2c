"""A stream of tasks, scored: which weights answer the test of which task, and figures of that."""
