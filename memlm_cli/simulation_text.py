"""What many keys would cost on many machines, as tables and as JSON."""

import json
from typing import TYPE_CHECKING, Any

from memlm_cli.console import answer, answers_on_terminal
from memlm_cli.tables import table
from stages.numbers import duration, number, size

if TYPE_CHECKING:
    from pipelines.simulation import Cluster, Measured, Phase

COLUMNS = ("phase", "machine hours", "by the clock", "held up by", "file system", "stays")


def show_simulation(found: "Measured", keys: int, queries: int, cluster: "Cluster", json_: bool) -> None:
    """Print the phases of all work, where it stops scaling, and what an index in parts would need."""
    from pipelines.simulation import larger, phases, scales_to, sharded

    config = larger(found, keys)
    steps = phases(found, config, keys, queries, cluster)
    limit, parts = scales_to(found, config, keys, queries, cluster), sharded(found, keys, queries, cluster)
    if json_:
        answer(
            json.dumps(
                {
                    "measured": {**found._asdict(), "config": found.config.model_dump()},
                    "cluster": cluster._asdict(),
                    "keys": keys,
                    "lists": config.lists,
                    "probe": config.probe,
                    "phases": [_entry(phase, cluster) for phase in steps],
                    "scales_to": limit,
                    "sharded": parts._asdict(),
                }
            )
        )
        return
    terminal = answers_on_terminal()
    clock = sum(phase.elapsed(cluster)[0] for phase in steps)
    busy = sum(phase.seconds for phase in steps)
    whole = ("all", _hours(busy), duration(clock), "", size(sum(map(_moved(cluster), steps))), size(_stays(steps)))
    lines = [
        f"{keys:,} keys of width {found.dim}, {config.index}, {config.lists:,} lists, {config.probe} read",
        f"{cluster.machines:,} machines of {size(cluster.memory)}, {size(cluster.network)}/s each to a file system of "
        f"{size(cluster.storage)}/s; by what {found.reference} took here",
        "",
        table("", COLUMNS, [*(_row(phase, cluster) for phase in steps), whole], terminal=terminal),
        "",
        f"beyond {limit:,} machines, twice as many save less than a tenth of the time",
        f"an index in parts, one in the memory of each machine: {parts.machines:,} machines; {parts.lists:,} lists, "
        f"{number(round(parts.compared))} keys compared a query; {_hours(parts.seconds)} machine hours of evaluation, "
        f"{size(parts.network)} between machines (memlm has no such index)",
        *_too_many(keys),
        _assumptions(found),
    ]
    answer("\n".join(lines), styled=True)


def _assumptions(found: "Measured") -> str:
    return (
        f"assumed: machines as fast as this one was; a pair of vectors takes as long as at {found.rows:,} keys, "
        f"choosing a neighbour as long as at k = {found.k:,}; no restarts, nothing else on the network"
    )


def _too_many(keys: int) -> list[str]:
    from stages.search.automatic import MOST_KEYS

    if keys <= MOST_KEYS:
        return []
    return [f"memlm numbers {MOST_KEYS:,} keys of an index at the most: so many need one in parts in any case"]


def _row(phase: "Phase", cluster: "Cluster") -> tuple[str, ...]:
    clock, longest = phase.elapsed(cluster)
    return (
        phase.name,
        _hours(phase.seconds),
        duration(clock),
        longest + (", one machine" if phase.alone else ""),
        size(_moved(cluster)(phase)),
        size(phase.stays) if phase.stays else "",
    )


def _entry(phase: "Phase", cluster: "Cluster") -> dict[str, Any]:
    clock, longest = phase.elapsed(cluster)
    return {
        "phase": phase.name,
        "machine_seconds": phase.seconds,
        "seconds": clock,
        "held_up_by": longest,
        "one_machine": phase.alone,
        "moved": _moved(cluster)(phase),
        "stays": phase.stays,
    }


def _moved(cluster: "Cluster") -> Any:
    return lambda phase: phase.moved + (1 if phase.alone else cluster.machines) * phase.each


def _stays(steps: "list[Phase]") -> float:
    return sum(phase.stays for phase in steps)


def _hours(seconds: float) -> str:
    return number(round(seconds / 3600, 2))
