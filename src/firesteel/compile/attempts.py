"""Rules for a vertex' attempts: at the same time or one after another, mirrored or not, and giving the same rows or others.

A vertex is a chain, and one member that refuses is enough (FLIP-168). Sources take part unless they say no, sinks only
if they say yes: ``supports_concurrent_execution_attempts``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from firesteel.compile.plan import PlannedStep
from firesteel.compile.stream_graph import ChainedStep, KeyedStep, SinkStep, SourceStep
from firesteel.compile.vertices import Vertex
from firesteel.model.job_graph import SourceInfo
from firesteel.task.operators.relational import Limit, Sample
from firesteel.task.services.map_async import MapAsync

SAID_BY_USER = "as_nondeterministic()"


@dataclass(frozen=True, slots=True)
class Attempts:
    """``why_alone``: why two must never run at once; ``why_not_mirrored``; ``why_other_rows``. Empty: they may, they are,
    they give the same."""

    why_alone: str = ""
    why_not_mirrored: str = ""
    why_other_rows: str = ""


def attempts_of(vertex: Vertex, source: SourceInfo | None) -> Attempts:
    """``vertex``: with all of its steps; ``source``: what its source knows."""
    steps = [*vertex.steps, *vertex.ends]
    alone = next((why for step in steps for why in _alone(step)), "")
    unmirrored = next((why for step in steps for why in _not_mirrored(step)), "")
    other = next((why for step in steps for why in _other_rows(step)), "")
    if not other and source is not None and not source.deterministic:
        other = f"Spark calls the DataFrame of {vertex.first.node} nondeterministic"
    return Attempts(alone, alone or unmirrored, other or _cut_by_order(vertex))


def _alone(step: PlannedStep) -> Iterator[str]:
    if step.node.config.side_effects:
        yield f"side_effects() of {step.node}"
    work, asked = step.work, "supports_concurrent_execution_attempts"
    if isinstance(work, SourceStep) and not getattr(work.source, asked, True):
        yield f"the source of {step.node} refuses concurrent attempts"
    if isinstance(work, SinkStep) and not getattr(work.sink, asked, False):
        yield f"the sink of {step.node} does not support concurrent attempts"


def _not_mirrored(step: PlannedStep) -> Iterator[str]:
    if not step.node.config.speculative:
        yield f"no_speculation() of {step.node}"
    if is_called_async(step):
        yield f"a mirror would call the service of {step.node} a second time"


def is_called_async(step: PlannedStep) -> bool:
    """True of ``map_async``."""
    return isinstance(step.work, ChainedStep) and isinstance(step.work.operator, MapAsync)


def _other_rows(step: PlannedStep) -> Iterator[str]:
    if not step.node.config.deterministic:
        yield f"{SAID_BY_USER} of {step.node}"
    if isinstance(step.work, KeyedStep):
        for output in step.work.by_order:
            yield f"'{output}' of {step.node} depends on the order in which rows come"


def _cut_by_order(vertex: Vertex) -> str:
    """The reason why attempts may give other rows: an operator behind an exchange depends on the order of rows; else empty."""
    behind = list(vertex.operators) if vertex.gates else []
    cut = next((operator for operator in behind if isinstance(operator, Limit | Sample)), None)
    if isinstance(cut, Sample):
        return f"{cut.name} draws rows in the order in which they come"
    return "" if cut is None else f"{cut.name} takes the first rows to come"
