"""What was retrieved of a memory, and how it is read: pure functions on tensors."""
