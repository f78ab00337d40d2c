"""Comparison of two reports on one text, token by token, or word by word if their tokenizers
differ.
"""
