"""How old the entries are that memorizing attention finds, how well they fit, and how far its gates open."""
