"""What compressive attention reads of its slots, and what was lost when they were made."""
