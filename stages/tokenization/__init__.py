"""Makes a tokens artifact of text: reads and selects the text, encodes it and assembles the arrays."""
