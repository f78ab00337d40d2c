"""How fast this machine does what memlm is made of, beside what its processors should do."""
