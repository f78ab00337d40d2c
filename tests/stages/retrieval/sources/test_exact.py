from tests.stages.retrieval.sources.contract import SourceContract


class TestExactStream(SourceContract):
    spec = "exact-stream:size=30,matches=5/100,lambda=0.3"
