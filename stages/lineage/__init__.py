"""Which artifacts belong together: the corpus of a model, the encoder of a datastore, what an evaluation reads."""
