"""Networks between input embeddings and softmax, one in each file; settings are grouped by how
networks read text.
"""
