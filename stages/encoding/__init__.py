"""How a model reads a split: windows and segments, the state that it carries, scores and keys of a range of tokens."""
