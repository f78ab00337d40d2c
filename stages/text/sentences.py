"""Text of few lines, broken into more: behind what looks like the end of a sentence."""

import re
from collections.abc import Iterable, Iterator

_ENDS = re.compile(
    r"(?<=[.!?…。！？])[ \t]+|(?<=[.!?…。！？][\"'”’»」』）)\]])[ \t]+"  # the white space behind, which goes
    r"|(?<=[。！？])(?![。！？」』”’）\s])|(?<=[。！？][」』”’）])(?!\s)"
)
LONGEST = 1 << 16
"""Characters that are held until a sentence ends; longer ones stay as they are."""


def in_sentences(texts: Iterable[str]) -> Iterator[str]:
    """Text that comes in pieces, with a line end for the white space behind `.`, `!`, `?`, and behind `。`, `！`, `？`.

    Abbreviations (`Mr.`) are taken for ends, too. Line ends that are there stay.

    >>> "".join(in_sentences(["It rains. “Does i", "t?” Yes! 下雨了。", "是嗎？」「是。"]))
    'It rains.\\n“Does it?”\\nYes!\\n下雨了。\\n是嗎？」\\n「是。'
    """
    held = ""
    for text in texts:
        held, start = held + text, 0
        for end in _ENDS.finditer(held):
            if end.end() < len(held):  # else what follows may belong to it
                yield held[start : end.start()] + "\n"
                start = end.end()
        held = held[start:]
        if len(held) > LONGEST:
            yield held
            held = ""
    yield held
