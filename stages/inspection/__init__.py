"""What a model and its memories say about a passage, token by token, and where in the corpus that comes from."""
