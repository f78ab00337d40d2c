"""Settings of Sphinx. Everything is in the result: no font and no script comes from elsewhere."""

project = "memlm"
copyright = "the memlm authors, Apache-2.0"
extensions = ["myst_parser"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "memlm"
html_show_sphinx = False
html_copy_source = False
suppress_warnings = ["myst.header"]
smartquotes = False
highlight_language = "none"
