"""Text that is given out while it grows, and held back where a string that ends it may begin."""

from collections.abc import Sequence

from stages.generation.stopping import longest_beginning


class GrowingText:
    """A text that ends before the first of some strings.

    >>> text = GrowingText(["END"])
    >>> [text.add(part) for part in ("a E", "N", "X EN", "D b")]
    ['a ', '', 'ENX ', '']
    >>> text.stopped, text.text
    (True, 'a ENX ')
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        """`stops`: strings that end the text; they are left out."""
        self._stops = stops
        self._longest = max(map(len, stops), default=0)
        self.text = ""
        """The text so far; once it has stopped, without what ended it."""
        self.given = 0
        """Number of characters given out."""
        self.stopped = False

    def add(self, part: str) -> str:
        """Add a part; returns the text that is sure to stay."""
        # A string that ends the text may have begun before this part.
        searched_from = max(0, len(self.text) - self._longest + 1)
        self.text += part
        places = (self.text.find(stop, searched_from) for stop in self._stops)
        end = min((place for place in places if place >= 0), default=None)
        if end is not None:
            self.text = self.text[:end]
            self.stopped = True
            return self._give(end)
        return self._give(len(self.text) - longest_beginning(self.text, self._stops))

    def end(self) -> str:
        """The text that was held back, when nothing more comes."""
        return self._give(len(self.text))

    def _give(self, until: int) -> str:
        part = self.text[self.given : until]
        self.given = max(self.given, until)
        return part
