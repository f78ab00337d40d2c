"""The text of generated tokens, up to one of the strings that end it."""

from collections.abc import Sequence

from stages.text.excerpt import TextStream, TokenText


class StoppedText:
    """Text of tokens that come one by one, as far as it cannot become a stop string any more."""

    def __init__(self, text: TokenText, stops: Sequence[str]) -> None:
        self._stream = TextStream(text)
        self._stops = stops
        self._held = ""
        self.stopped = False
        """Whether a stop string came; nothing of it, and nothing behind it, is given out."""

    def add(self, token: int) -> str:
        """Text that is certain once this token came; empty while it may still be a stop string."""
        return self._passed_on(self._stream.add(token))

    def end(self) -> str:
        """The rest of the text."""
        if self.stopped:
            return ""
        rest = self._passed_on(self._stream.end())
        rest_of_text = self._held
        self._held = ""
        return rest + rest_of_text

    def _passed_on(self, text: str) -> str:
        """Text so far without what is held back."""
        text = self._held + text
        places = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if places:
            self.stopped = True
            self._held = ""
            return text[: min(places)]
        number = longest_beginning(text, self._stops)
        self._held = text[len(text) - number :]
        return text[: len(text) - number]


def longest_beginning(text: str, stops: Sequence[str]) -> int:
    r"""Length of the longest end of a text that begins one of the stop strings.

    >>> longest_beginning("a line\n", ["\n\n", "END"])
    1
    """
    lengths = range(max(map(len, stops), default=1) - 1, 0, -1)
    ends = (n for n in lengths if any(text.endswith(stop[:n]) for stop in stops if n < len(stop)))
    return next(ends, 0)
