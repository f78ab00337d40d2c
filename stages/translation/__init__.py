"""Translation of sentences token by token: decoders, beam search, and memory that is read at every
step.
"""
