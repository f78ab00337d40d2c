"""A datastore made into another: whose rows stay, which are encoded again, which are added, and how all lie on disk."""
