"""Slow twins of text processing: whole texts at once, one rule after the other."""

import hashlib
import re

WHITE_SPACE = re.compile(r"[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
"""Unicode's property White_Space, spelled out."""


def lines(text: str) -> list[str]:
    """Lines with their newlines."""
    parts = text.split("\n")
    return [part + "\n" for part in parts[:-1]] + [part for part in parts[-1:] if part]


def is_blank(line: str) -> bool:
    return not line.strip()


def groups(text: str, begins: list[bool]) -> list[str]:
    """Join lines into groups; a group begins at a line that may begin one if the group before has
    some text.
    """
    found: list[list[str]] = []
    for line, begin in zip(lines(text), begins, strict=True):
        if not found or (begin and not is_blank(line) and not all(map(is_blank, found[-1]))):
            found.append([])
        found[-1].append(line)
    return ["".join(group) for group in found]


def documents(text: str, rule: str) -> list[str]:
    """The documents of one file."""
    all_lines = lines(text)
    blank = [True, *map(is_blank, all_lines), True]
    begins = {
        "file": [False for _ in all_lines],
        "line": [True for _ in all_lines],
        "blank-line": [blank[i] for i in range(len(all_lines))],
        "wikitext": [
            blank[i] and blank[i + 2] and bool(re.fullmatch(r" = (?!= ).*(?<! =) = \n?", line))
            for i, line in enumerate(all_lines)
        ],
    }
    return groups(text, begins[rule])


def paragraphs(document: str) -> list[str]:
    return documents(document, "blank-line")


def paragraph_hash(paragraph: str) -> int:
    digest = hashlib.blake2b(paragraph.strip().encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def words(text: str) -> list[str]:
    return [word for word in WHITE_SPACE.split(text) if word]


def word_tokens(text: str) -> list[str]:
    """Words, with `<eos>` after each line."""
    return [token for line in lines(text) for token in [*words(line), "<eos>"]]


def word_vocabulary(text: str, limit: int | None = None) -> list[str]:
    """Types by falling count, ties by text; beyond the limit the rarest are counted as `<unk>`."""
    tokens = word_tokens(text)
    counts = {word: tokens.count(word) for word in {*tokens, "<unk>", "<eos>"}}
    ordinary = sorted(set(counts) - {"<unk>", "<eos>"}, key=lambda w: (-counts[w], w))
    for rare in ordinary[len(ordinary) if limit is None else limit - 2 :]:
        counts["<unk>"] += counts.pop(rare)
    return sorted(counts, key=lambda w: (-counts[w], w))
