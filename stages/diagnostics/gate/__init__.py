"""What SPALM's gate does: how far it opens, what its neighbours are worth, a passage token by token."""
