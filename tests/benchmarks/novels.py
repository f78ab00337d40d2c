"""Novels as text in the manner of WikiText, for the table of another domain: train, valid and test,
a book a record.

    python -m tests.benchmarks.novels novels.jsonl.xz FOLDER [--words 15000 10000 20000]

Records of the input have the fields `split` and `text`. Of every book its first so many words, by
split; words and punctuation stand apart, and what joins two words is written as there (`well @-@
known`, `Tom 's`).
"""

import argparse
import json
import lzma
import re
from pathlib import Path

SPLITS = ("train", "valid", "test")
TOKEN = re.compile(r"[^\W\d_]+|\d+|'s\b|[^\w\s]")


def like_wikitext(text: str) -> str:
    """A book's words and punctuation, separated by spaces, a paragraph a line."""
    paragraphs = re.split(r"\n\s*\n", text)
    return "\n".join(
        " ".join(TOKEN.findall(paragraph)).replace(" - ", " @-@ ") for paragraph in paragraphs
    )


def first_words(text: str, words: int) -> str:
    return "".join(re.findall(r"\S+\s*", text)[:words])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("novels", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--words", type=int, nargs=3, default=[15_000, 10_000, 20_000])
    options = parser.parse_args()
    with lzma.open(options.novels, "rt", encoding="utf-8") as file:
        books = [json.loads(line) for line in file]
    for split, words in zip(SPLITS, options.words, strict=True):
        texts = (
            like_wikitext(first_words(book["text"], words))
            for book in books
            if book["split"] == split
        )
        lines = (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
        Path(options.folder, f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
