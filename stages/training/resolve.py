"""Settings of a training run that follow from its inputs, never from the clock, so that ids agree
on all machines.

Free of torch until a model must be counted.
"""

import math

from stages.artifacts.artifact import Artifact
from stages.artifacts.stage import Execution, Inputs
from stages.errors import DataError, UsageError, did_you_mean
from stages.examples.cutting import WindowSettings
from stages.lineage.corpus import require_sources
from stages.methods import METHODS
from stages.methods.config import TRAIN, Batches, MethodSettings
from stages.metrics import MOST_PASSES
from stages.models import FACTORED, IMPORTED, NAMED
from stages.models.backbones.stream_configs import remembering_layers
from stages.models.config import BackboneConfig, model_of
from stages.numbers import duration, passes
from stages.text.tokens import require_segment
from stages.training.config import AUTO, TrainConfig
from stages.training.equal_time import memory_seconds, updates_of_equal_time
from stages.training.sizes import cut_by_tokens, epoch_batches, segments

PASSES_OF_IMPORTED = 2.0
"""Passes over the text for a pretrained model: with more it memorizes the text."""
TOKENS_A_WEIGHT = 20
"""Training tokens per weight, given enough text (Hoffmann et al. 2022, arXiv:2203.15556)."""
MOST_STEPS = 2**31 - 1
"""Maximum of `steps`."""
VALIDATIONS = 20
"""Number of validations of a run. The best weights are kept, so validations must be frequent enough
to find them.
"""


def worthwhile_passes(tokens: int, weights: int) -> float:
    """Number of passes over the training split that still improve a model with `weights` weights.

    >>> worthwhile_passes(tokens=4_000_000, weights=800_000)
    4.0
    >>> worthwhile_passes(tokens=100_000, weights=800_000)
    8.0
    >>> worthwhile_passes(tokens=10**9, weights=800_000)
    1.0
    """
    return float(min(max(TOKENS_A_WEIGHT * weights / max(tokens, 1), 1), MOST_PASSES))


def validations(steps: int) -> int:
    """Steps between validations."""
    return max(1, steps // VALIDATIONS)


def fitted_model(config: TrainConfig, inputs: Inputs) -> BackboneConfig:
    """The model to train: the initial model or the described one, with the additions of the method."""
    model = config.model
    tokens = inputs["tokens"]
    size = tokens.metrics["vocabulary_size"]
    if "init" in inputs:
        model = _taken_over(config, inputs["init"])
    elif model.vocab_size not in (None, size):
        raise UsageError(
            f"model.vocab_size is {model.vocab_size}, but {tokens.reference} has {size} types; leave it out."
        )
    model = _lengthened(model.sized(size, config.segment_length), config)
    if "init" not in inputs and (config.wider > 1 or config.deeper > 1):
        raise UsageError("wider and deeper are of a model to begin from: name it with --init-from.")
    if model.head is not None:
        raise UsageError("model.head follows from the method: leave it out.")
    model = config.method_settings.extend_model(model, tokens)
    if config.lora is not None:
        if model.head is not None and model.head.writes_answers:
            model = model.model_copy(
                update={"head": model.head.model_copy(update={"learns_rows": True})}
            )
        _require_factors(config, model, inputs)
    if (model.gate or model.gate_values) and not config.method_settings.neighbors_read:
        # Other methods take neighbours as labels, and put none into hidden states.
        methods = (name for name in METHODS.names() if METHODS.settings(name)().neighbors_read)
        choices = " or ".join(methods)
        raise UsageError(
            f"model.gate: method {config.method!r} reads no neighbours; use --method {choices}."
        )
    return model


def _require_factors(config: TrainConfig, model: BackboneConfig, inputs: Inputs) -> None:
    """Raises: UsageError for LoRA factors on weights that begin at random, or that layers read
    directly.
    """
    if "init" not in inputs:
        raise UsageError(
            "--lora is for a model to begin from, whose weights stay: name it with --init-from."
        )
    if model.backbone not in FACTORED:
        raise UsageError(
            f"--lora is for the backbones {', '.join(FACTORED)}: train this {model.backbone} whole, without it."
        )
    if config.method_settings.task_model(model, 0) != model:
        raise UsageError(
            f"--lora: method {config.method!r} makes the model larger before a task; factors are of one size: leave "
            "it out, or the model as it is (--set memory.wider=[] --set memory.deeper=[])."
        )


def task_order(config: TrainConfig, tokens: Artifact) -> tuple[str, ...] | None:
    """The order in which tasks are learnt; None: there is none.

    Raises: UsageError for an order that does not contain all tasks, or for a method that does not
    learn them in turn.
    """
    if config.method_settings.learns != "tasks":
        if config.order is not None:
            raise UsageError(
                f"--order: method {config.method!r} learns no tasks one after the other; leave it out."
            )
        return None
    names: list[str] = tokens.metrics["tasks"]
    order = tuple(names) if config.order is None else config.order
    for name in order:
        if name not in names:
            raise UsageError(
                f"--order: {tokens.reference} has no task {name!r}; {did_you_mean(name, names)}"
            )
    if sorted(order) != sorted(names):
        raise UsageError(
            f"--order names each task of {tokens.reference} once: {','.join(names)}, in any order."
        )
    return order


def _lengthened(model: BackboneConfig, config: TrainConfig) -> BackboneConfig:
    """The model with its memory layers sized by `long_length`. Raises: UsageError if it has no such
    layer.
    """
    if config.long_length is None:
        return model
    if model.lengths.remembered is None:
        layers = remembering_layers()
        backbones = " or ".join(backbone for backbone, name in NAMED.items() if name in layers)
        raise UsageError(
            f"The model has no layer that remembers a number of slots or entries, as those of a {backbones} do: "
            "leave --long-length out."
        )
    windows = WindowSettings(
        config.segment_length, config.segment_length, model.lengths.carried, config.long_length
    )
    return model.reading(windows)


def _taken_over(config: TrainConfig, init: Artifact) -> BackboneConfig:
    """The architecture of the initial model, with segments and other open settings as requested."""
    from stages.models.growth import grown_config

    model = model_of(init).reading_neighbors(config.model, init.reference)
    if config.wider > 1 or config.deeper > 1:
        model = grown_config(model, config.wider, config.deeper)
    carried, remembered = config.model.lengths
    attention = getattr(config.model, "attention", None)
    # A default of the settings is not what the user asks for.
    if "long_length" not in getattr(attention, "model_fields_set", ()):
        remembered = None
    length = config.segment_length
    return model.reading(WindowSettings(length, length, carried, remembered))


def resolved_length(
    config: TrainConfig, epochs: float | None, inputs: Inputs, execution: Execution
) -> dict[str, int]:
    """Number of updates: as requested, from a number of epochs of whole batches, as many as take
    the time of a report, or as many as still improve.

    Raises: UsageError if several of these are asked for.
    """
    if "time_of" in inputs:
        return _steps_of_equal_time(config, epochs, inputs["time_of"], execution)
    if epochs is not None:
        return {"steps": _steps(config, inputs, epochs)}
    if config.steps != AUTO:
        return {}
    tokens = inputs["tokens"]
    if config.method_settings.learns != "text":
        num_passes = 1.0  # as in the papers, each example is read once
    elif config.model.backbone == IMPORTED:
        num_passes = PASSES_OF_IMPORTED
    else:
        weights = _weights(config, tokens, execution)
        num_passes = worthwhile_passes(train_tokens(tokens), weights)
    steps = _steps(config, inputs, num_passes)
    execution.reporter.info(
        f"{steps:,} steps, {passes(num_passes)} over the {train_tokens(tokens):,} tokens of the text (--steps auto)"
    )
    if "valid_every" in config.model_fields_set:
        return {"steps": steps}
    return {"steps": steps, "valid_every": validations(steps)}


def _steps_of_equal_time(
    config: TrainConfig, epochs: float | None, report: Artifact, execution: Execution
) -> dict[str, int]:
    if epochs is not None or config.steps != AUTO:
        raise UsageError("--time-of gives the number of updates: leave --steps and --epochs out.")
    update_tokens = config.batch_tokens * config.accumulate
    steps = updates_of_equal_time(report, update_tokens)
    execution.reporter.info(
        f"{steps:,} steps, in about the {duration(memory_seconds(report))} that {report.reference} and its "
        "memory took (--time-of)"
    )
    return {"steps": steps}


def _weights(config: TrainConfig, tokens: Artifact, execution: Execution) -> int:
    """How many numbers the model learns, as a trained one of the same settings says, if the store
    has one: so a command whose model is there loads no torch."""
    model_settings = config.model_dump(mode="json", include={"model"})["model"]
    for model in tokens.store.artifacts("model"):
        if model.config.get("model") == model_settings:
            return int(model.metrics["parameters"])
    require_memory(config, tokens, execution)
    from stages.models.language_model import parameter_count

    return parameter_count(config.model)


def require_examples(config: TrainConfig, model: BackboneConfig, tokens: Artifact) -> None:
    """Check that the model can read the examples, and that they can be cut as the settings say.

    A stream is cut into segments. Examples of unequal length, such as pairs, are whole: a number
    of tokens fills a batch.

    Raises: ArtifactError for pairs and a model that reads no source, or the reverse; UsageError
        for a segment length of whole examples; DataError for text of less than one segment, and
        for an example that is longer than a batch.
    """
    require_sources(model, tokens)
    if not cut_by_tokens(tokens):
        require_segment(train_tokens(tokens), config.segment_length)
        return

    if config.segment_length != TrainConfig.model_fields["segment_length"].default:
        kind = tokens.metrics["examples"]
        raise UsageError(
            f"{tokens.reference} holds {kind}, and each is a segment: leave --segment-length out."
        )
    _require_batches(config, model, tokens)


def _require_batches(config: TrainConfig, model: BackboneConfig, tokens: Artifact) -> None:
    """Check that the longest example fits into a batch. Raises: DataError, naming its line."""
    from stages.examples.examples import Corpus

    cutting = model.cutting(WindowSettings(config.segment_length, config.segment_length))
    sizes = Corpus.of(tokens).examples(TRAIN, cutting).sizes
    longest = int(sizes.argmax())
    if sizes[longest] <= config.batch_tokens:
        return
    files = sum(role.startswith(f"{TRAIN}.source") for role, _ in tokens.manifest.outside_files)
    dropped = tokens.metrics["splits"][TRAIN].get("empty_dropped", 0)
    # skipped blank lines and joined files shift the numbers
    shifted = " (of all files, without pairs that were left out)" if dropped or files > 1 else ""
    raise DataError(
        f"Line {longest + 1:,} of {TRAIN}{shifted} has {sizes[longest]:,} tokens, more than a batch: "
        f"--batch-tokens {sizes[longest]} is the least."
    )


def require_memory(config: TrainConfig, tokens: Artifact, execution: Execution) -> None:
    from stages.models.devices import device_type
    from stages.training.sizes import require_room

    require_room(config, config.model, segments(config, tokens), device_type(execution.device))


def _steps(config: TrainConfig, inputs: Inputs, epochs: float) -> int:
    """Number of updates of some epochs of whole batches. Raises: UsageError for more than the
    maximum of `steps`.
    """
    steps = max(1, math.ceil(epochs * max(1, epoch_batches(config, inputs)) / config.accumulate))
    if steps > MOST_STEPS:
        raise UsageError(
            f"--epochs {epochs:g} takes {steps:.3g} updates; at most {MOST_STEPS:,} are made."
        )
    return steps


def require_documents(config: TrainConfig, tokens: Artifact) -> None:
    """Raises: UsageError if a run is too short for its method; see
    `MethodSettings.require_documents`.
    """
    of_tasks = tokens.metrics["splits"][TRAIN].get("task_documents")
    if of_tasks is None or config.steps == AUTO:
        return
    batch = min(config.batch_segments, *of_tasks)
    config.method_settings.require_documents(
        of_tasks, (config.steps - 1) * config.accumulate * batch
    )


def train_tokens(tokens: Artifact) -> int:
    return int(tokens.metrics["splits"][TRAIN]["tokens"])


def resolved_memory(
    config: TrainConfig, model: BackboneConfig, inputs: Inputs
) -> MethodSettings | None:
    """The settings of memory, completed from the backbone and the batches."""
    from stages.training.ranks import world_size

    if config.memory is None:
        return None
    split = inputs["tokens"].metrics["splits"][TRAIN]
    batch = max(1, min(config.batch_segments, segments(config, inputs["tokens"])))
    if config.model.reads.source:  # the number of sentences that fit; each is a document
        batch = max(1, config.batch_tokens // max(split["longest"], split["longest_source"]))
    borders = (split["documents"] - 1) * config.segment_length / split["tokens"]
    same = inputs["batches"].metrics.get("same_document") if "batches" in inputs else None
    return config.memory.fitted(inputs).complete(
        model, Batches(batch, world_size(), config.accumulate, borders, same)
    )
