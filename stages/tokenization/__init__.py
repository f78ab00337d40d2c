"""Text made into a tokens artifact: what is read, what is chosen from it, and how its arrays are put together."""
