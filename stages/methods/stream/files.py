"""Files of a model that learnt a stream of tasks."""

FOLDER = "after"
"""Weights after each task."""
MEMORY = "memory.safetensors"
"""Documents that a method keeps of the training split: `rows` int64 [M], in the order of writing, and `tasks`."""


def after_file(place: int) -> str:
    """Name of the file with the weights after the task at a place in the stream, counted from 1; 0: before the first.

    >>> after_file(1)
    'after/01.safetensors'
    """
    return f"{FOLDER}/{place:02d}.safetensors"


def samples_file(place: int) -> str:
    """Name of the file with the samples that the task at a place in the stream was learnt with, counted from 1.

    >>> samples_file(2)
    'samples/02.json'
    """
    return f"samples/{place:02d}.json"
