"""Charts as SVG of our own, so that a page's colours follow the reader's screen, and a file's are those of paper."""
