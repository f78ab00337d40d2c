"""Changes of a datastore: rows that stay, are encoded again, or are added, and their layout on
disk.
"""
