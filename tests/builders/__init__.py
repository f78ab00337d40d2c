"""Builders of what several tests begin with."""
