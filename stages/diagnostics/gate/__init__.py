"""SPALM's gate: how far it opens, what its neighbours are worth, a passage token by token."""
