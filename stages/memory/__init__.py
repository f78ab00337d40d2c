"""Reads what was retrieved from a memory: pure functions on tensors."""
