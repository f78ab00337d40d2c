"""A Ray cluster of two machines, of one core each, on this one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("ray")

from ray.cluster_utils import Cluster

NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}


@contextmanager
def two_machines() -> Iterator[Any]:
    """A cluster that commands find; what asks for it is skipped where Ray does not start."""
    try:
        both = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
        both.add_node(**NODE)
        both.wait_for_nodes()
    except Exception as error:  # as where ports or shared memory are refused
        pytest.skip(f"Ray does not start here: {error}")
    os.environ["RAY_ADDRESS"] = both.address
    yield both
    del os.environ["RAY_ADDRESS"]
    both.shutdown()
