"""Inspection of a passage, token by token: predictions of a model and its memories, and their
sources in the corpus.
"""
