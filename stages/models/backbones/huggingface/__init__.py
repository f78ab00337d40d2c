"""Any causal language model of the package transformers, as it was imported."""
