"""Lineages: vertices of two jobs that do the same to the same, from the sources on; and why one of them has no such vertex in the other.

Nothing is answered from another run because of these: executions are told apart one by one. They say beforehand what may be kept, in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from firesteel.compile.identity.digests import digest
from firesteel.compile.identity.facts import VertexPrint, differences
from firesteel.model.steps.reports import OPENED


@dataclass(frozen=True, slots=True)
class Lines:
    """The vertices of a job, in topological order. ``inputs``: the vertices whose rows each of them reads."""

    names: Sequence[str]
    prints: Sequence[VertexPrint]
    inputs: Sequence[Sequence[int]]

    def lineages(self) -> list[bytes | None]:
        """A digest for each vertex, of what it and all before it do; None: nobody can tell."""
        found: list[bytes | None] = []
        for own, read in zip(self.prints, self.inputs, strict=True):
            before = [found[producer] for producer in read]
            known = [one for one in before if one is not None]
            if own.unprovable or own.input is None or len(known) < len(before):
                found.append(None)
            else:
                found.append(digest(own.program, own.input, *known))
        return found


@dataclass(frozen=True, slots=True)
class Match:
    """``then``: the vertex of the earlier job that did the same to the same; None: there is none, for the reason ``why``, which follows the
    vertex' name."""

    then: int | None
    why: str = ""


def matches(then: Lines, now: Lines) -> list[Match]:
    """For each vertex of the present job. Equal ones are matched in their order."""
    free: dict[bytes, list[int]] = {}
    for vertex, lineage in enumerate(then.lineages()):
        if lineage is not None:
            free.setdefault(lineage, []).append(vertex)
    found: list[Match] = []
    for vertex, lineage in enumerate(now.lineages()):
        same = free.get(lineage, []) if lineage is not None else []
        found.append(Match(same.pop(0)) if same else Match(None, _why(then, now, vertex, found)))
    return found


def _why(then: Lines, now: Lines, vertex: int, before: Sequence[Match]) -> str:
    own = now.prints[vertex]
    namesakes = [then.prints[k] for k, name in enumerate(then.names) if name == now.names[vertex]]
    found = [differences(one, own) for one in namesakes]
    again = [now.names[producer] for producer in now.inputs[vertex] if before[producer].then is None]
    if own.unprovable:
        why = own.unprovable[0]
    elif not namesakes:
        why = "is new"
    elif all(found):
        why = min(found, key=len)[0]
    elif opened := [why for one in namesakes for why in one.unprovable if why.endswith(OPENED)]:
        why = opened[0]
    elif again:
        why = f"reads '{again[0]}', which runs again"
    elif own.input is None:
        why = "reads something of which nobody can tell whether it has changed"
    elif any(one.unprovable or one.input is None for one in namesakes):
        why = "read something then of which nobody can tell whether it has changed since"
    else:
        why = "reads other steps than it did"
    return why
