"""Devices that FAISS can search on."""

import faiss


def searching_gpus() -> int:
    """GPUs that FAISS sees; its build for the CPU sees none."""
    return int(getattr(faiss, "get_num_gpus", int)())
