"""Networks between input embeddings and softmax: a file each; their settings by how they read."""
