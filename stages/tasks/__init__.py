"""Scores of a stream of tasks: the tests of tasks, the weights that answer them, and figures."""
