"""The command line: the words that a person types, and the text that appears."""
