from tests.stages.artifacts.executors.contract import ExecutorContract


class TestLocal(ExecutorContract):
    workers = 1
