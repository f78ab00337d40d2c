"""Options of an evaluation for its probes, resolved before any work and stored with its settings.

Only the gate has options; each is a field of `stages.evaluation.config.EvaluateConfig`, too.
Resolving them imports neither torch nor a probe of memlm, so that an existing report is found at
once.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stages.diagnostics import PROBES
from stages.errors import UsageError
from stages.registry import import_outside

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact
    from stages.charts.data import Chart
    from stages.diagnostics.probe import Options

FORM = re.compile(r"([0-9]{1,15}):([0-9]{1,15})")
USUAL = 64
"""Default number of tokens that are shown."""
LONGEST = 256
"""Maximum number of tokens in a heat map."""


def spelled_passage(passage: str) -> str:
    """START:STOP in the form in which it is stored. Raises: ValueError if the text does not have
    this form.
    """
    match = FORM.fullmatch(passage)
    if match is None:
        raise ValueError(f"{passage!r} is no START:STOP, such as 0:64")
    return f"{int(match[1])}:{int(match[2])}"


def tokens_of(passage: str | None) -> range:
    """The tokens of a passage START:STOP; empty for None."""
    start, stop = map(int, (passage or "0:0").split(":"))
    return range(start, stop)


def resolve_passage(requested: str | None, split: str, tokens: "Artifact") -> str:
    """A passage of a split: the one asked for, or the first tokens; cut at the end of the split.

    Raises: UsageError if the passage has no token, or too many.
    """
    total = int(tokens.metrics["splits"][split]["tokens"])
    tokens_shown = range(USUAL) if requested is None else tokens_of(requested)
    stop = min(tokens_shown.stop, total)
    if tokens_shown.start >= stop:
        raise UsageError(f"--passage {requested} holds no token: {split} has {total:,} tokens.")
    if stop - tokens_shown.start > LONGEST:
        raise UsageError(
            f"--passage {requested} is longer than {LONGEST} tokens, the most that are shown."
        )
    return f"{tokens_shown.start}:{stop}"


OPTIONS = ("gate_k", "passage")
"""Numbers of neighbours: the one that a gate reads, and others to compare; and tokens that are
shown one by one.
"""


def resolve_options(
    options: "Options", read: "Mapping[str, Artifact]", splits: tuple[str, ...]
) -> dict[str, Any]:
    """Complete the options for the evaluated model: the number of neighbours from training, the
    split's first tokens.

    Args:
        read: artifacts that the evaluation reads, by role.
        splits: the scored split, then the tuning split, if any; empty: a text from outside the
        corpus.
    Raises: UsageError for options of a gate that the model does not have, or a passage outside the
        split; ArtifactError if the stored neighbours are too few, or hold the answers.
    """
    from stages.lineage.evaluation import MODELS_OWN  # not needed by `--help`
    from stages.lineage.neighbors import require_neighbors

    model = read["model"]
    if MODELS_OWN not in read:
        for name, value in options.items():
            if value is not None:
                raise UsageError(
                    f"{model.reference} has no gate: leave --{name.replace('_', '-')} out."
                )
        return dict(options)
    trained = (model.config["memory"] or {}).get("k")
    if trained is None:
        raise model.damaged("manifest.json has a gate, and no config.memory.k")
    first, *others = options["gate_k"] or (trained,)
    numbers = (first, *sorted({*others} - {first}))
    for split in splits:
        require_neighbors(read[MODELS_OWN], split, max(numbers), "evaluate --gate-k ")
    passage = resolve_passage(options["passage"], splits[0], read["tokens"]) if splits else None
    return {"gate_k": numbers, "passage": passage}


def reported_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Options that a question about a model takes from the settings of an evaluation; {} without an
    evaluation.

    The number of neighbours is kept. The passage is not, since it belongs to the evaluation.
    """
    numbers = config.get("gate_k")
    return {"gate_k": None if numbers is None else (numbers[0],), "passage": None}


def outside_probes(read: "Mapping[str, Artifact]", options: "Options", split: str) -> set[str]:
    """Names of the outside probes that apply to the model; see `Probe.open`."""
    import_outside()
    outside = [name for name in PROBES.names() if PROBES.outside_modules({name})]
    return {name for name in outside if PROBES.load(name).open(read, options, split) is not None}


def probe_summaries(metrics: Mapping[str, Any]) -> list[str]:
    """A line for each probe with an entry in `metrics.json`."""
    return [
        PROBES.load(name).summary(metrics[name]) for name in PROBES.names() if metrics.get(name)
    ]


def probe_charts(metrics: Mapping[str, Any], files: Mapping[str, Any]) -> "dict[str, list[Chart]]":
    """The charts of each probe, by its name; see `Probe.charts`."""
    return {name: PROBES.load(name).charts(metrics, files) for name in PROBES.names()}
