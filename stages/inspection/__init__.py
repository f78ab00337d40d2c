"""A passage token by token: what a model and its memories predicted, and where in the corpus that comes from."""
