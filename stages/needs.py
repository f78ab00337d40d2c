"""Disk and memory that stages need, by arithmetic on the manifests of their inputs.

The rows of `STAGES` name these functions. What `tokenize` needs follows from the text alone. An
amount that does not follow from manifests is None, never a guess.
"""

import json

from stages.artifacts.kinds import ADDED
from stages.artifacts.needs import Needs
from stages.artifacts.stage import Inputs
from stages.encoding.datastore_config import DatastoreConfig, layouts_of
from stages.encoding.window_settings import STATES_KEPT, state_bytes
from stages.evaluation.config import EvaluateConfig
from stages.evaluation.figures.control import MOST_TOKENS
from stages.indexing.layouts import query_layouts
from stages.indexing.settings import PART_BYTES
from stages.lineage.indexes import described_keys
from stages.models.config import model_of
from stages.packing.segments import array_layouts, whole_segments
from stages.pretrained.config import ImportConfig
from stages.registry import load
from stages.retrieval.inputs import inputs_in
from stages.search import EXACT
from stages.search.automatic import grows_whole, index_bytes, is_lossless, memory_to_search
from stages.search.config import IndexConfig, NeighborsConfig
from stages.suffixes import AT_ONCE
from stages.suffixes.indexing import (
    CONTEXTS_PER_SHARD,
    SORTING_BYTES,
    TEXT,
    opened_bytes,
    scratch_bytes,
)
from stages.tasks.config import EvaluateTasksConfig
from stages.tasks.episodes import EpisodesConfig, key_width, layouts
from stages.text.config import PackConfig
from stages.training.config import TrainConfig
from stages.training.sizes import (
    checkpoint_bytes,
    saved_bytes,
    segments,
    training_bytes,
    update_tokens,
)
from stages.training.training_data import mapped_bytes
from stages.updating.change import Change
from stages.updating.config import UpdateConfig
from stages.updating.plan import bytes_of_sources_and_names, longer_layouts, row_layouts

WEIGHT_BYTES = 4
"""Bytes of a weight in memory, float32."""
MATCH_BYTES = 16
"""Bytes of one match of a segment, its id and score, while segments are packed."""
SMALL_BYTES = 6_000
"""Settings, journal and logs of a training, about."""


def import_needs(config: ImportConfig, inputs: Inputs) -> Needs:
    """Sizes are read from the headers of the pretrained files."""
    model = load("stages.pretrained.resolve:pretrained_size")(config, inputs)
    settings = json.dumps(config.stored()["model"], indent=2)
    return Needs(
        disk=model.bytes + len(settings),
        scratch=0,
        memory=model.memory,
        metrics={"parameters": model.parameters},
        advice="a smaller model",
    )


def train_needs(config: TrainConfig, inputs: Inputs) -> Needs:
    """Shapes of the weights are read on the meta device; nothing is allocated."""
    saved, parameters = saved_bytes(config)
    after_tasks = sum(_weights_after_each_task(config, saved))
    checkpoint = checkpoint_bytes(config, inputs, saved)
    return Needs(
        # The best weights, and the last.
        disk=2 * saved + SMALL_BYTES + after_tasks,
        # The previous checkpoint is kept until the next is complete.
        scratch=mapped_bytes(inputs, config) + 2 * checkpoint,
        device_memory=training_bytes(config, config.model, segments(config, inputs["tokens"])),
        metrics={
            "parameters": parameters,
            "steps": config.steps,
            "tokens": int(config.steps) * update_tokens(config, inputs),
        },
        advice="smaller --batch-tokens with --accumulate, or a smaller model",
    )


def _weights_after_each_task(config: TrainConfig, saved: int) -> list[int]:
    """Bytes of the weights before the first task and after each; `saved`: of those after the last."""
    settings = config.method_settings
    if config.order is None:
        return []
    sizes = []
    for task in range(len(config.order) + 1):
        model = settings.task_model(config.model, max(0, task - 1))
        if model == config.model:
            sizes.append(saved)
        else:
            smaller = config.model_copy(update={"model": model})
            sizes.append(saved_bytes(smaller)[0])
    return sizes


def datastore_needs(config: DatastoreConfig, inputs: Inputs) -> Needs:
    """The number of rows is known from the manifest of the tokens."""
    encoder = inputs["encoder"]
    stored = layouts_of(config, inputs)
    state = state_bytes(encoder, config.windows, stored.rows)
    smaller_keys = ", --dtype float16" if config.dtype == "float32" else ""
    return Needs(
        disk=sum(layout.stored_bytes for layout in stored),
        scratch=STATES_KEPT * state,
        device_memory=WEIGHT_BYTES * int(encoder.metrics["parameters"]) + state,
        metrics={
            "rows": stored.rows,
            "dim": stored.dim,
            "dtype": config.dtype,
            "key": config.key,
        },
        advice=f"--fraction stores a part of the split{smaller_keys}",
    )


def update_needs(config: UpdateConfig, inputs: Inputs) -> Needs:
    """The number of rows follows from manifests; the added split is not read."""
    encoder = inputs["encoder"]
    change = Change.of(config, inputs)
    added = _count_added(change)
    stored = row_layouts(config, encoder, change.remaining_tables.rows + added["tokens"])
    tables = longer_layouts(change.remaining_tables, added)
    names = bytes_of_sources_and_names(change.remaining_tables, change.tokens, change.split)

    keys = stored.keys
    state = state_bytes(encoder, config.windows, stored.rows)
    # Kept keys pass through memory in pieces: one is read while another is written.
    piece = min(keys.rows_per_shard * keys.row_bytes, keys.nbytes)
    encoding = WEIGHT_BYTES * int(encoder.metrics["parameters"]) + state
    return Needs(
        disk=sum(layout.stored_bytes for layout in (*stored, *tables)) + sum(names.values()),
        scratch=STATES_KEPT * state,
        memory=2 * piece,
        device_memory=encoding if ADDED in inputs else 0,
        metrics={
            "rows": stored.rows,
            "dim": stored.dim,
            "dtype": config.dtype,
            "key": config.key,
            "forgotten": change.before.rows - change.remaining_tables.rows,
            "added": added["tokens"],
        },
        advice="fewer documents to --add",
    )


def _count_added(change: Change) -> dict[str, int]:
    """Count the tokens that are added, and the rows of each table."""
    units = ("tokens", "documents", "paragraphs")
    if change.tokens is None:
        return dict.fromkeys((*units, "runs"), 0)
    split = change.tokens.metrics["splits"][change.split]
    counts = {unit: int(split[unit]) for unit in units}
    return counts | {"runs": 1}


def index_needs(config: IndexConfig, inputs: Inputs) -> Needs:
    """The size follows from the kind of index. For a factory string of FAISS it is not known."""
    if config.index == EXACT:
        return _exact_index_needs(int(inputs[TEXT].metrics["splits"][config.split]["tokens"]))
    keys = described_keys(inputs["datastore"])
    metrics = {"rows": keys.rows, "dim": keys.dim}
    size = index_bytes(config, keys)
    if size is None:
        return Needs(metrics=metrics)
    whole = grows_whole(config)
    sample = WEIGHT_BYTES * keys.dim * int(config.train_keys or 0)
    return Needs(
        disk=size,
        # Lists are written apart, and then merged into the file.
        scratch=0 if whole else size,
        memory=max(size if whole else PART_BYTES, sample),
        metrics=metrics | {"bytes": size, "lossless": is_lossless(config)},
        advice="" if config.index == "ivf-pq" else "--index ivf-pq holds codes instead of keys",
    )


def _exact_index_needs(rows: int) -> Needs:
    """Needs of an exact index: positions of tokens, and the lengths that neighbouring contexts
    share.
    """
    position_bytes = 8 if rows >= 2**32 else 4
    size = rows * position_bytes + rows
    return Needs(
        disk=size,
        scratch=scratch_bytes(rows, position_bytes),
        memory=opened_bytes(rows) + SORTING_BYTES * min(rows, CONTEXTS_PER_SHARD),
        metrics={"rows": rows, "bytes": size},
    )


def neighbors_needs(config: NeighborsConfig, inputs: Inputs) -> Needs:
    """There is one query for each token of every split that is read."""
    index = inputs["index"]
    splits = inputs["queries"].metrics["splits"]
    tokens = {split: int(splits[split]["tokens"]) for split in config.queries or ()}
    figures = {split: {"queries": count, "missing": 0.0} for split, count in tokens.items()}
    return Needs(
        disk=sum(
            layout.stored_bytes for layout in query_layouts(config, index.metrics["dim"], tokens)
        ),
        scratch=0,
        memory=memory_to_search(index.config["index"], index.metrics.get("bytes")) or 0,
        metrics={"k": config.k, "splits": figures},
        advice="a smaller --k, or --queries with fewer splits",
    )


def pack_needs(config: PackConfig, inputs: Inputs) -> Needs:
    """The number of segments is known from the manifest of the tokens."""
    count = whole_segments(config, inputs)
    return Needs(
        disk=sum(layout.stored_bytes for layout in array_layouts(count).values()),
        scratch=MATCH_BYTES * count * min(config.k, count - 1),
        metrics={"segments": count},
    )


def evaluate_needs(config: EvaluateConfig, inputs: Inputs) -> Needs:
    """The size of a report depends on what it shows, so it is not known."""
    model = inputs["model"]
    tokens = inputs["tokens"].metrics["splits"][config.split]["tokens"]
    state = state_bytes(model, config.windows, tokens)
    memory = matching_memory(inputs)
    for memory_input, artifact in inputs_in(inputs.artifacts):
        memory += memory_input.memory_bytes(artifact)
    if "index" in inputs and "neighbors" not in inputs:
        index = inputs["index"]
        memory += memory_to_search(index.config["index"], index.metrics.get("bytes")) or 0
    copies = 1 if config.dynamic is None else config.dynamic.copies
    return Needs(
        memory=memory,
        device_memory=copies * WEIGHT_BYTES * int(model.metrics["parameters"]) + state,
        metrics={"tokens": tokens},
    )


def matching_memory(inputs: Inputs) -> int:
    """Bytes of the buffer that sorts a part of the readable texts, to find passages of the split
    there.
    """
    splits = inputs["tokens"].metrics["splits"]
    texts = [splits["train"]["tokens"] if "train" in splits else 0]
    if "datastore" in inputs:
        texts.append(inputs["datastore"].metrics["rows"])
    for _, artifact in inputs_in(inputs.artifacts):
        # Tokens have no rows: their training split is counted above.
        texts += [artifact.metrics["rows"]] if "rows" in artifact.metrics else []
    return SORTING_BYTES * min(max(texts), AT_ONCE) if sum(texts) <= MOST_TOKENS else 0


def episodes_needs(config: EpisodesConfig, inputs: Inputs) -> Needs:
    """The arrays by arithmetic: one key for each document."""
    encoder = inputs["encoder"]
    rows = int(inputs["corpus"].metrics["splits"][config.split]["documents"])
    dim = key_width(model_of(encoder), config)
    return Needs(
        disk=sum(layout.stored_bytes for layout in layouts(rows, dim)),
        scratch=0,
        device_memory=WEIGHT_BYTES * int(encoder.metrics["parameters"]),
        metrics={"rows": rows, "dim": dim},
    )


def evaluate_tasks_needs(config: EvaluateTasksConfig, inputs: Inputs) -> Needs:
    """Memory: weights, with a copy and gradients if a reading adapts them; keys, and the part of
    them in memory.
    """
    weights = WEIGHT_BYTES * int(inputs["model"].metrics["parameters"])
    copies = max(reading.copies for reading in config.readings)
    needed = (1 + copies) * weights
    if "episodes" in inputs:
        episodes = inputs["episodes"]
        needed += WEIGHT_BYTES * int(episodes.input("encoder").metrics["parameters"])
        needed += 2 * WEIGHT_BYTES * int(episodes.metrics["rows"]) * int(episodes.metrics["dim"])
    return Needs(device_memory=needed)
