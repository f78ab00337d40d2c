"""What a method or a layer shows of itself while a split is scored: a folder each."""
