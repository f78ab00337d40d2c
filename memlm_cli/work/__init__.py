"""Work of commands, imported when they run: `memlm --help` needs their options alone."""
