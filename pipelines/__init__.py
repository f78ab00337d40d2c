"""Recipes that chain stages."""
