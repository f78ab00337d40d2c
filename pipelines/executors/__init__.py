"""Where the stages of a recipe run: in this process, or on a cluster; a module each."""

from stages.registry import Registry

EXECUTORS = Registry(
    "executor",
    {
        "local": "pipelines.executors.local:LocalExecutor",
        "ray": "pipelines.executors.cluster:ClusterExecutor",
    },
)
