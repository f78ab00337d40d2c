"""Reading a split with a model: windows and segments, carried state, scores and keys of a range of
tokens.
"""
