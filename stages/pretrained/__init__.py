"""Models and tokenizers from elsewhere: where they lie, and how they become files that memlm wrote."""
