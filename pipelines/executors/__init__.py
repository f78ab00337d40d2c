"""Where the stages of a plan run."""

from stages.registry import Registry

EXECUTORS = Registry("executor", {"local": "pipelines.executors.local:LocalExecutor"})
