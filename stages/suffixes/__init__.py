"""Contexts of a text in sorted order: a suffix array of the text read backwards. It knows arrays alone."""
