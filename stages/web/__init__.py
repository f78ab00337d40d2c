"""The frame of every web page: its colours, its tables, and the handle of what is wider than the screen."""
