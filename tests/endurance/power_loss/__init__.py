"""Power loss, replayed: what a process does to a folder is recorded, cut anywhere, and what was not
synced is lost.
"""
