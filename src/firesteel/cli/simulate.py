"""``firesteel simulate``: what a job of some shape costs to schedule, on a cluster that is made up."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Any

from firesteel.errors import UsageError
from firesteel.humanize import format_bytes, format_count, format_seconds, plural
from firesteel.journal.journal import Journal
from firesteel.simulation.cluster import ClusterSpec
from firesteel.simulation.report import Costs, Simulated, costs_of
from firesteel.simulation.workload import ChainShape, EdgeKind


def simulate_text(
    *,
    vertices: int,
    parallelism: int,
    edge: str,
    nodes: int,
    slots: int,
    adaptive: bool | None,
    pipelined: bool,
    slow_nodes: int,
    fail_rate: float,
    seed: int,
    as_json: bool,
    journal: Path | None = None,
    options: Mapping[str, Any] | None = None,
) -> str:
    """The report, for people or as JSON. Raises UsageError for values that make no job."""
    _check_counts({"vertices": vertices, "parallelism": parallelism, "nodes": nodes, "slots": slots})
    if edge not in [kind.value for kind in EdgeKind]:
        names = ", ".join(kind.value for kind in EdgeKind)
        raise UsageError(f"--edge {edge} is no kind of edge.", hint=f"Give one of {names}.")
    if not 0 <= slow_nodes <= nodes:
        raise UsageError(f"--slow-nodes {slow_nodes} must be between 0 and the number of nodes, {nodes}.")
    if not 0 <= fail_rate <= 0.5:
        raise UsageError(
            f"--fail-rate {fail_rate:g} must be between 0 and 0.5: the share of executions that fail.",
            hint="With more, jobs hardly end.",
        )
    if seed < 0:
        raise UsageError(f"--seed {seed} must be at least 0.")
    if pipelined and adaptive:
        raise UsageError(
            "--pipelined and --adaptive exclude each other: what is decided from finished results cannot read running ones.",
            hint="Leave --adaptive out.",
        )
    dynamic = not pipelined if adaptive is None else adaptive
    simulated = Simulated(
        ChainShape(vertices, parallelism, EdgeKind(edge), dynamic, pipelined),
        ClusterSpec(nodes, slots, slow_nodes),
        fail_rate,
        seed,
        options or {},
    )
    costs = _costs(simulated, journal)
    return _as_json(costs) if as_json else _for_people(simulated, costs)


def _costs(simulated: Simulated, path: Path | None) -> Costs:
    if path is None:
        return costs_of(simulated)
    try:
        path.open("wb").close()  # written anew, and in place: it may be a pipe or a device
        with closing(Journal(path)) as journal:
            return costs_of(simulated, journal)
    except OSError as error:
        raise UsageError(f"The journal cannot be written to '{path}': {error.strerror or error}.") from None


def _check_counts(counts: Mapping[str, int]) -> None:
    for name, count in counts.items():
        if count < 1:
            raise UsageError(f"--{name} {count} must be at least 1.")


def _as_json(costs: Costs) -> str:
    return json.dumps(asdict(costs), indent=2)


def _for_people(simulated: Simulated, costs: Costs) -> str:
    shape, cluster = simulated.shape, simulated.cluster
    kind = "adaptive" if shape.adaptive else "static"
    flow = "pipelined" if shape.pipelined else "blocking"
    lines = [
        f"{plural(shape.vertices, 'step')} of {plural(shape.parallelism, 'subtask')}, {flow} {shape.edge.value} edges, {kind}; "
        f"{plural(cluster.nodes, 'node')} with {plural(cluster.slots, 'slot')} each, seed {simulated.seed}.",
        f"{costs.status} after {format_seconds(costs.makespan_s)} of virtual time, "
        f"{plural(costs.tasks, 'task')}, {plural(costs.events, 'event')}.",
        "",
        _table(costs).rstrip("\n"),
        "",
        f"memory held by the scheduler  {costs.memory_mib:.1f} MiB",
        f"descriptors deployed          {format_bytes(costs.descriptor_bytes)}, at most "
        f"{format_bytes(costs.deployment_bytes)} for one execution",
        f"storage requests              {format_count(costs.storage_requests)} "
        f"({', '.join(f'{format_count(n)} {name}' for name, n in costs.requests.items() if n)})",
        f"decisions                     {', '.join(f'{n} {name}' for name, n in costs.decisions.items())}",
    ]
    return "\n".join(lines)


def _table(costs: Costs) -> str:
    """A rich table on a terminal, plain columns elsewhere."""
    rows = [(name, f"{p.ms:,.2f} ms", format_count(p.events)) for name, p in costs.phases.items() if p.events]
    rows.append(("all of it", f"{costs.scheduler_ms:,.2f} ms", ""))
    if not sys.stdout.isatty():
        width = max(len(row[0]) for row in rows)
        heading = f"{'phase':<{width}}  {'time':>14}  {'events':>9}"
        return "\n".join([heading, *(f"{name:<{width}}  {ms:>14}  {events:>9}" for name, ms, events in rows)])
    from rich.console import Console
    from rich.table import Table

    table = Table("phase")
    table.add_column("time", justify="right")
    table.add_column("events", justify="right")
    for row in rows:
        table.add_row(*row)
    text = StringIO()
    Console(file=text, force_terminal=True, width=80).print(table)
    return text.getvalue()
