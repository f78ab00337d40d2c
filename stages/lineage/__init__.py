"""Relations of artifacts: the corpus of a model, the encoder of a datastore, the inputs of an
evaluation.
"""
