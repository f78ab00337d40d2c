"""Open book: a retrieved passage of a text stands before the context of every stride."""
