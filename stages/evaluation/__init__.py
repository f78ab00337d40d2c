"""A split scored with a model and its memories: passes over it, tuning, what a report holds."""
