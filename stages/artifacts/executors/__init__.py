"""Executors of a stage's shards: in this process, in several processes, or on a cluster; one module
each.
"""
