"""Compressive attention: which slots it reads, and what was lost when they were made."""
