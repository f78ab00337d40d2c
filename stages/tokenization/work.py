"""The work of tokenize: a spool of the text, a tokenizer, ids of each shard, arrays of each split."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Job, ShardedWork, ShardJob, ShardPlan
from stages.text.config import TokenizeConfig
from stages.tokenization.assembly import assemble, write_tasks
from stages.tokenization.encoded import (
    SpooledText,
    VocabularyShard,
    WordsShard,
    encode_shard,
    make_vocabulary,
    split_words,
    vocabulary_figures,
    vocabulary_shards,
)
from stages.tokenization.size_warnings import report_figures
from stages.tokenization.spooling import TextShard, spooled_shards

AnyShard = TextShard | WordsShard | VocabularyShard


@dataclass(frozen=True)
class TokenizePlan(ShardPlan[AnyShard]):
    """Shards of all text, after those that make a vocabulary of words, if there is one."""

    texts: Sequence[TextShard]


class TokenizeWork(ShardedWork[TokenizeConfig, TokenizePlan, SpooledText, AnyShard]):
    """Encodes the text of each split."""

    def plan(self, job: Job[TokenizeConfig]) -> TokenizePlan:
        texts = spooled_shards(job)
        if job.config.tokenizer != "word":
            return TokenizePlan(texts, texts)
        # A vocabulary of words comes from the text: it is split into words once, in shards.
        return TokenizePlan([*vocabulary_shards(texts), *texts], texts)

    def open(self, job: ShardJob[TokenizeConfig], plan: TokenizePlan) -> SpooledText:
        return SpooledText(job.folder)

    def run_shard(
        self, job: ShardJob[TokenizeConfig], resources: SpooledText, shard: AnyShard
    ) -> ShardOutput:
        if isinstance(shard, WordsShard):
            return split_words(job.config, job.folder, resources.spool, shard)
        if isinstance(shard, VocabularyShard):
            return make_vocabulary(job.config, job.folder, resources.spool, shard)
        return encode_shard(job.folder, resources, shard)

    def finish(self, job: Job[TokenizeConfig], plan: TokenizePlan) -> dict[str, Any]:
        text = self.open(job, plan)
        splits = assemble(job, text, plan.texts)
        report_figures(job.config, text.tokenizer.vocabulary_size, splits, job.reporter)

        tasks = write_tasks(job, text, splits) if job.config.tasks else {}
        return {"splits": splits, **vocabulary_figures(job.config, text.tokenizer), **tasks}
