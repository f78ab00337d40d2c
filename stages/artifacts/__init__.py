"""Artifacts on disk, complete or absent, and the single mechanism that makes them.

A *draft* is work in progress (`kind/.id-partial`). Publishing turns it into an *artifact*
(`kind/id`) by one rename.
"""

from stages.registry import Registry

EXECUTORS = Registry(
    "executor",
    {
        "local": "stages.artifacts.executors.executor:LocalExecutor",
        "processes": "stages.artifacts.executors.processes:ProcessExecutor",
        "ray": "stages.artifacts.executors.cluster:RayExecutor",
    },
)
