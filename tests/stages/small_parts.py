"""Registers the small stages of tests. Every command that tests start imports this module, so it
imports nothing that computes.
"""

from stages.artifacts.declaration import StageEntry
from stages.artifacts.kinds import STAGES

TOKENS_STAGE = "small-tokens"
MODEL_STAGE = "small-model"

STAGES.targets |= {
    TOKENS_STAGE: StageEntry("tests.stages.small_store:SmallTokens", "tokens"),
    MODEL_STAGE: StageEntry("tests.stages.small_store:SmallModel", "model"),
}
