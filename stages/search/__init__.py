"""Nearest neighbours among stored keys: FAISS indexes, grouped IVF search and exact search behind one interface."""
