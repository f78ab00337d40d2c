"""Reading of retrieved memory entries, as pure functions on tensors."""
