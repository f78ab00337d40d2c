"""Packing of similar segments into batches."""
