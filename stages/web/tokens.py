"""Tokens as a page shows them: white space is spelled out, since a token may be nothing else."""

SIGNS = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "\N{NO-BREAK SPACE}": "⍽"}


def spelled(text: str) -> str:
    r"""A token by itself: without the white space around it, or with a sign for each if it is nothing else.

    >>> spelled(" cat"), spelled("  "), spelled("\n")
    ('cat', '␣␣', '⏎')
    """
    return text.strip() or "".join(SIGNS.get(letter, letter) for letter in text)


def passage(text: str) -> str:
    r"""A token within its passage: line breaks with a sign before them, and a sign for what is white space alone.

    >>> passage(" cat"), passage(" "), passage("\n  ")
    (' cat', '␣', '⏎\n␣␣')
    """
    shown = text if text.strip() else "".join(SIGNS.get(c, c) for c in text.replace("\n", "\0")).replace("\0", "\n")
    return shown.replace("\n", "⏎\n")
