"""Scoring of a split with a model and its memories: passes over the split, tuning, the figures of a
report.
"""
