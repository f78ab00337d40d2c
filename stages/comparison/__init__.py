"""Two reports of one text, compared token by token, or word by word where their tokenizers differ."""
