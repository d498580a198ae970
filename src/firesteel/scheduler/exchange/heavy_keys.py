"""The record that names the heavy keys of a data set to whoever reads it (what they are: ``firesteel.model.heavy_keys``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firesteel.humanize import format_bytes, plural
from firesteel.model.heavy_keys import HeavyKey
from firesteel.scheduler.topology.execution_graph import IntermediateResult

IN_WORDS = 3
"""Keys in the sentence; the record has all that are named."""


def explain(result: IntermediateResult, producer: str) -> dict[str, Any] | None:
    """The decision's record: fields of ``records.Decision`` without what, vertex and name. None: no key is heavy. ``producer``: its
    name."""
    heavy = result.info.heavy_keys()
    if not heavy:
        return None
    columns = result.dataset.keys
    named = [_recorded(key, share, columns) for key, share in heavy]
    told = [_words(one) for one in named[:IN_WORDS]]
    more = len(heavy) - len(told)
    if more:
        told.append(f"{plural(more, 'other key')} {'has' if more == 1 else 'have'} {_percent(heavy[-1][1])} or more")
    total = result.info.num_bytes_produced
    return {
        "inputs": {"dataset": result.dataset.id, "columns": list(columns), "bytes": total},
        "rule": "sampled by the producers",
        "result": named,
        "reason": f"of the {format_bytes(total)} of '{producer}', {_listed(told)}",
    }


def _recorded(key: HeavyKey, share: float, columns: Sequence[str]) -> dict[str, Any]:
    """Of a key with very many columns it has the first ones."""
    named = dict(zip(columns, key.values, strict=False))
    return {"key": named, "subpartition": key.subpartition, "share": round(share, 4)}


def _words(recorded: dict[str, Any]) -> str:
    key = ", ".join(f"{column} = {value}" for column, value in recorded["key"].items())
    return f"{key} has {_percent(recorded['share'])} (subpartition {recorded['subpartition']})"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))
