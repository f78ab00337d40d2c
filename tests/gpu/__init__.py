"""A campaign for a GPU that comes unannounced: see `python -m tests.gpu --help`."""
