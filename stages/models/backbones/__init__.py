"""Networks between input embeddings and softmax: a folder each."""
