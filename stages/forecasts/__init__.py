"""Forecasts of commands: disk and amount of work, from manifests alone."""
