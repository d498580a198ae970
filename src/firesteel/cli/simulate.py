"""``firesteel simulate``: what a job of some shape costs to schedule, on a cluster that is made up."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Any

from firesteel.errors import UsageError
from firesteel.humanize import format_bytes, format_count, format_seconds, plural
from firesteel.journal.file import Journal, job_of
from firesteel.options import BATCH_SHUFFLE_MODE, SCHEDULER, Layer, Options, format_value, lookup, parse_size
from firesteel.simulation.cluster.nodes import PROFILES, ClusterSpec, with_workers
from firesteel.simulation.report import SIMULATED, Costs, Simulated, costs_of
from firesteel.simulation.workload import ChainShape, EdgeKind

FLAGS = {SCHEDULER.key: "--static or --adaptive", BATCH_SHUFFLE_MODE.key: "--pipelined, or leave it out"}
"""Options that flags set, and what to say instead."""
_MOST_OF_ONE, _MOST_IN_ALL = 1 << 20, 1 << 26
NO_SPARK = "Spark cannot run this job: its tasks stream over forward edges only."


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
    slow_factor: float,
    frozen_nodes: int,
    fail_rate: float,
    seed: int,
    as_json: bool,
    journal: str | None = None,
    options: Mapping[str, Any] | None = None,
    groups: Sequence[str] = (),
    memory: str | None = None,
    external: Sequence[str] = (),
    profiles: str = "task",
) -> tuple[str, bool]:
    """The report, for people or as JSON, and whether the job finished. Raises UsageError for values that make no job."""
    _check_counts({"vertices": vertices, "parallelism": parallelism, "nodes": nodes, "slots": slots})
    if edge not in [kind.value for kind in EdgeKind]:
        names = ", ".join(kind.value for kind in EdgeKind)
        raise UsageError(f"--edge {edge} is not a kind of edge.", hint=f"Give one of {names}.")
    if not 0 <= slow_nodes <= nodes:
        raise UsageError(f"--slow-nodes {slow_nodes} must be between 0 and the number of nodes, {nodes}.")
    if not 0 < slow_factor <= 1:
        raise UsageError(f"--slow-factor {slow_factor:g} must be more than 0 and at most 1: the speed of slow nodes.")
    if not 0 <= frozen_nodes < nodes:
        raise UsageError(
            f"--frozen-nodes {frozen_nodes} must be at least 0 and less than the number of nodes, {nodes}."
        )
    if frozen_nodes and pipelined:
        raise UsageError(
            "--frozen-nodes and --pipelined cannot be used together: regions may need more slots than are left.",
            hint="Leave one of them out.",
        )
    if not 0 <= fail_rate <= 0.5:
        raise UsageError(
            f"--fail-rate {fail_rate:g} must be between 0 and 0.5: the share of executions that fail.",
            hint="With more, jobs rarely finish.",
        )
    if seed < 0:
        raise UsageError(f"--seed {seed} must be at least 0.")
    if pipelined and adaptive:
        raise UsageError(
            "--pipelined and --adaptive cannot be used together: what is decided from finished results cannot read running ones.",
            hint="Leave --adaptive out.",
        )
    options = Options(options)
    for key, flag in FLAGS.items():
        if key in options and options.origin(key).layer >= Layer.COMMAND:
            raise UsageError(f"'-O {key}' is not for simulate.", hint=f"Say {flag}.")
    options = options.without(FLAGS)
    dynamic = not pipelined if adaptive is None else adaptive
    simulated = Simulated(
        ChainShape(vertices, parallelism, EdgeKind(edge), dynamic, pipelined),
        _cluster(ClusterSpec(nodes, slots, slow_nodes, slow_factor), memory, external, profiles),
        fail_rate,
        seed,
        options,
        frozen_nodes=frozen_nodes,
        groups=tuple(groups),
    ).all_blocking()
    simulated.check()
    costs = _costs(simulated, journal)
    text = _as_json(simulated, costs) if as_json else _for_people(simulated, costs)
    return text, costs.finished


def _cluster(spec: ClusterSpec, memory: str | None, external: Sequence[str], profiles: str) -> ClusterSpec:
    """With workers of resources, where ``memory`` is given."""
    if profiles not in PROFILES:
        raise UsageError(f"--profiles {profiles} is not known.", hint=f"Give one of {', '.join(PROFILES)}.")
    if memory is None:
        if external:
            raise UsageError("--external says what workers have, and --memory does not.", hint="Give both.")
        return spec
    try:
        size = parse_size(memory)
    except ValueError as error:
        raise UsageError(
            f"--memory '{memory}' is not a size: {error}.", hint="Write, for example, --memory '64 GiB'."
        ) from None
    return with_workers(spec, size, dict(map(_amount, external)), profiles)


def _amount(pair: str) -> tuple[str, float]:
    name, equals, amount = pair.partition("=")
    if not equals or not name.strip() or not amount.strip().isdigit():
        raise UsageError(
            f"--external '{pair}' is not an amount of a resource.", hint="Write, for example, --external gpu=2."
        )
    return name.strip(), float(amount)


def _costs(simulated: Simulated, journal: str | None) -> Costs:
    if journal is None:
        return costs_of(simulated)
    if journal.strip() in ("", "-"):
        raise UsageError(f"--journal '{journal}' is not a file.", hint="Give the path of a file to write.")
    path = Path(journal)
    try:
        if path.is_file() and path.stat().st_size and job_of(path) != SIMULATED:
            raise UsageError(
                f"'{path}' is there already and is not the journal of a simulation: it is not overwritten.",
                hint="Give another --journal.",
            )
        path.open("wb").close()  # written anew, and in place: it may be a pipe or a device
        with closing(Journal(path)) as written:
            return costs_of(simulated, written)
    except OSError as error:
        raise UsageError(f"The journal cannot be written to '{path}': {error.strerror or error}.") from None


def _check_counts(counts: Mapping[str, int]) -> None:
    for name, count in counts.items():
        if count < 1:
            raise UsageError(f"--{name} {count} must be at least 1.")
        if count > _MOST_OF_ONE:
            raise UsageError(f"--{name} {count} must be at most {_MOST_OF_ONE}.")
    if counts["vertices"] * counts["parallelism"] > _MOST_IN_ALL or counts["nodes"] * counts["slots"] > _MOST_IN_ALL:
        raise UsageError(
            f"That is more than {format_count(_MOST_IN_ALL)} subtasks or slots.",
            hint="No machine has the memory for that: ask for fewer.",
        )


def _as_json(simulated: Simulated, costs: Costs) -> str:
    shape, cluster = simulated.shape, simulated.cluster
    inputs = {
        "vertices": shape.vertices,
        "parallelism": shape.parallelism,
        "edge": shape.edge.value,
        "adaptive": shape.adaptive,
        "pipelined": shape.pipelined,
        "nodes": cluster.nodes,
        "slots": cluster.slots,
        "slow_nodes": cluster.slow_nodes,
        "slow_factor": cluster.slow_factor,
        "frozen_nodes": simulated.frozen_nodes,
        "fail_rate": simulated.fail_rate,
        "seed": simulated.seed,
        "groups": list(simulated.groups),
        "worker": str(cluster.workers[0]) if cluster.workers else None,
        "profiles": next(name for name, kind in PROFILES.items() if kind is cluster.mode.enforcement),
        "options": {key: format_value(lookup(key), value) for key, value in Options(simulated.options).items()},
    }
    told = {"inputs": inputs, "notes": _notes(simulated), **asdict(costs)}
    told["makespan_s"] = round(costs.makespan_s, 3)
    told["phases"] = {name: {"ms": round(p.ms, 3), "events": p.events} for name, p in costs.phases.items()}
    return json.dumps(told, indent=2)


def _for_people(simulated: Simulated, costs: Costs) -> str:
    requests = ", ".join(f"{format_count(count)} {name}" for name, count in costs.requests.items() if count)
    lines = [
        _headline(simulated, costs),
        *_notes(simulated),
        f"{costs.status} after {format_seconds(costs.makespan_s)} of virtual time, "
        f"{plural(costs.tasks, 'task')}, {plural(costs.events, 'event')}.",
        *([f"It failed: {costs.cause.rstrip('.')}."] if costs.cause else []),
        "",
        _table(costs).rstrip("\n"),
        "",
        f"memory held by the scheduler  {costs.memory_mib:.1f} MiB",
        f"descriptors deployed          {format_bytes(costs.descriptor_bytes)}, at most "
        f"{format_bytes(costs.deployment_bytes)} for one execution",
        f"storage requests              {format_count(costs.storage_requests)}{f' ({requests})' if requests else ''}",
        *_speculated(costs),
        *_slots(costs),
        f"decisions                     {', '.join(f'{n} {name}' for name, n in costs.decisions.items())}",
    ]
    return "\n".join(lines)


def _speculated(costs: Costs) -> list[str]:
    """A line where there is something to tell."""
    done = costs.speculation
    if not (done.mirrors or done.blocked or done.rejected):
        return []
    return [
        f"speculation                   {plural(done.mirrors, 'mirror')}, {format_count(done.effective)} of them effective; "
        f"nodes blocked {format_count(done.blocked)} times, {plural(done.rejected, 'execution')} rejected"
    ]


def _slots(costs: Costs) -> list[str]:
    """A line for each slot sharing group, where any has resources."""
    return [
        f"{_clipped(f'slots of {name}'):<28}  {slots.needs}: at most {format_count(slots.most)} held at once, "
        f"{slots.core_seconds:,.0f} core-seconds, {slots.gib_seconds:,.0f} GiB-seconds"
        for name, slots in costs.slots.items()
    ]


def _clipped(text: str) -> str:
    return text if len(text) <= 28 else f"{text[:25]}..."


def _headline(simulated: Simulated, costs: Costs) -> str:
    """The request and the decisions."""
    shape, cluster = simulated.shape, simulated.cluster
    most = "at most " if shape.adaptive and shape.vertices > 1 else ""
    steps = f"{plural(shape.vertices, 'step')} of {most}{plural(shape.parallelism, 'subtask')}"
    edges = f", {'pipelined' if shape.pipelined else 'blocking'} {shape.edge.value} edges" if shape.vertices > 1 else ""
    return (
        f"{steps}{edges}, {'adaptive' if shape.adaptive else 'static'}{f'; decided {_decided(costs)}' if most else ''}; "
        f"{plural(cluster.nodes, 'node')} with {_each_has(cluster)} each, seed {simulated.seed}."
    )


def _each_has(cluster: ClusterSpec) -> str:
    return f"{cluster.workers[0]}" if cluster.workers else plural(cluster.slots, "slot")


def _decided(costs: Costs) -> str:
    """Parallelisms after the source: one for all, each, or their range."""
    known = [count for count in costs.parallelism[1:] if count >= 0]
    if len(known) < len(costs.parallelism) - 1:
        return f"{len(known)} of {len(costs.parallelism) - 1}"
    if len(set(known)) == 1:
        return format_count(known[0]) + (f" for each of {len(known)}" if len(known) > 1 else "")
    if len(known) > 6:
        return f"{format_count(min(known))} to {format_count(max(known))}"
    return " and ".join(format_count(count) for count in known)


def _notes(simulated: Simulated) -> list[str]:
    shape = simulated.shape
    return [NO_SPARK] if shape.pipelined and shape.vertices > 1 and shape.edge is not EdgeKind.FORWARD else []


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
