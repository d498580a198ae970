"""The table of REST: what there is to ask for, under ``/api/v1``. Routes, their OpenAPI document and its page are made of it.

Names are Flink's where Flink has the resource. A route calls a method of the source. The method's signature gives the route's parameters,
their kinds, and the type of the answer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from firesteel.ui.catalog.source import Source
from firesteel.ui.views.structs import MOST_ITEMS, Page

PREFIX = "/api/v1"
Kind = Literal["string", "integer", "number"]
_KINDS: dict[Any, Kind] = {str: "string", int: "integer", float: "number"}
_DOCS = {
    "id": "The job's id, as in the list.",
    "other": "The other job's id.",
    "subtask": "The subtask, from 0.",
    "attempt": "The attempt, from 0.",
    "vertex": "Of this vertex alone.",
    "offset": "Number of the first item, from 0.",
    "limit": f"Most items of the answer; at most {MOST_ITEMS}.",
    "text": "A part of a name or id.",
    "status": "running, finished, failed, cancelled, broken off, unfinished or damaged.",
    "kind": "job, stream or script.",
    "sort": 'A field of the items; "-" before it: descending.',
    "mode": '"cancel".',
    "what": '"parallelism", "failover", ...',
    "begin": "Seconds since the job began.",
    "end": "Seconds since the job began.",
    "state": "RUNNING, FINISHED, ...",
    "parallelism": "Partitions; where it is left out, those that are wanted already.",
    "lower": "The lower bound; as it is where it is left out.",
    "upper": "The upper bound.",
}


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    kind: Kind = "string"
    doc: str = ""
    default: Any = None
    where: Literal["path", "query", "body"] = "query"


@dataclass(frozen=True)
class Route:
    """``fixed``: arguments that this path sets, so that a request cannot. ``others``: describes parameters of any other name, which the
    method takes as its ``values``; empty: there are none."""

    method: str
    path: str
    doc: str
    call: Callable[..., Any]
    fixed: Mapping[str, str] = field(default_factory=dict[str, str])
    others: str = ""

    @property
    def changes(self) -> bool:
        return self.method != "GET"

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        hints = get_type_hints(self.call)
        given = {"self", "values", *self.fixed}
        own = [one for one in inspect.signature(self.call).parameters.values() if one.name not in given]
        return tuple(self._parameter(one, hints[one.name]) for one in own)

    def _parameter(self, one: inspect.Parameter, hint: Any) -> Parameter:
        kind = _KINDS[next(each for each in _KINDS if each in (hint, *get_args(hint)))]
        if f"{{{one.name}}}" in self.path:
            return Parameter(
                one.name, kind, "The vertex' id." if one.name == "vertex" else _DOCS[one.name], where="path"
            )
        default = None if one.default is inspect.Parameter.empty else one.default
        return Parameter(one.name, kind, _DOCS[one.name], default, "body" if self.method == "PUT" else "query")

    @cached_property
    def returns(self) -> tuple[Any, ...]:
        """The types that the answer may have; empty: there is no answer."""
        made = get_type_hints(self.call)["return"]
        kinds = get_args(made) if isinstance(made, UnionType) else (made,)
        return tuple(each for each in kinds if each is not type(None))

    @cached_property
    def item(self) -> type[Any] | None:
        """The type of a table's rows; None: the answer is not a table."""
        made = get_type_hints(self.call)["return"]
        return get_args(made)[0] if get_origin(made) is Page else None


_VERTEX = "/jobs/{id}/vertices/{vertex}"
_BOUNDS = "/jobs/{id}/resource-requirements"
ROUTES = (
    Route("GET", "/jobs", "Jobs, streams and accelerated scripts, the latest first.", Source.jobs),
    Route("GET", "/streams", "Streams, the latest first.", Source.jobs, {"kind": "stream"}),
    Route(
        "GET", "/jobs/{id}", "A job, a stream or a script: its state, and what is known of it as a whole.", Source.job
    ),
    Route(
        "PATCH", "/jobs/{id}", "Cancels a job or stream of this process, or a stream of this machine.", Source.terminate
    ),
    Route(
        "POST",
        "/jobs/{id}/stop",
        "Stops a stream once its running batch has committed; its checkpoint is the savepoint.",
        Source.stop,
    ),
    Route("GET", "/jobs/{id}/config", "The options of a job that are not defaults.", Source.options),
    Route("GET", "/jobs/{id}/exceptions", "Attempts that failed, the latest first.", Source.failures),
    Route("GET", "/jobs/{id}/decisions", "Every decision and its reason, in order.", Source.decisions),
    Route("GET", "/jobs/{id}/attempts", "Every execution of every subtask.", Source.all_attempts),
    Route(
        "GET",
        "/jobs/{id}/timeline",
        "Attempts per node and slot, as many marks as a picture has room for.",
        Source.timeline,
    ),
    Route("GET", "/jobs/{id}/slots", "Slots in use and waited for over time, by slot sharing group.", Source.slots),
    Route("GET", "/jobs/{id}/nodes", "What each node ran of a job, the busiest first.", Source.nodes),
    Route(
        "GET",
        "/jobs/{id}/what-if",
        "Its decisions with other options, beside the real ones.",
        Source.what_if,
        others="Options of the decider and of joins, by any of their names.",
    ),
    Route("GET", "/jobs/{id}/compare/{other}", "This job (right) beside another one (left).", Source.comparison),
    Route("GET", "/jobs/{id}/vertices", "The vertices of a job.", Source.vertices),
    Route("GET", _VERTEX, "One vertex: its decisions, ranges, stragglers, nodes, failures.", Source.vertex),
    Route(
        "GET",
        f"{_VERTEX}/subtasktimes",
        "The subtasks of a vertex, with bytes, node and duration.",
        Source.subtasks,
    ),
    Route("GET", f"{_VERTEX}/subtasks/{{subtask}}", "One subtask and all of its attempts.", Source.subtask),
    Route("GET", f"{_VERTEX}/subtasks/{{subtask}}/attempts/{{attempt}}", "One attempt.", Source.attempt),
    Route("GET", "/jobs/{id}/rescales", "Rescales of a stream, the latest first.", Source.rescales),
    Route(
        "PATCH", "/jobs/{id}/rescaling", "Asks a stream for a parallelism now, whatever the downtime.", Source.rescale
    ),
    Route("GET", _BOUNDS, "The bounds of a stream's parallelism.", Source.requirements),
    Route("PUT", _BOUNDS, "Changes the bounds of a stream's parallelism.", Source.update_requirements),
)
EVENTS = f"{PREFIX}/jobs/{{id}}/events"
"""Server-sent events of a job that runs: a Pulse each time that something has changed."""
ACTIONS = {
    "cancel": Route("POST", "/jobs/{id}/cancel", "", Source.cancel),
    "stop": Route("POST", "/jobs/{id}/stop", "", Source.stop),
    "rescale": Route("POST", "/jobs/{id}/rescale", "", Source.rescale),
    "requirements": Route("POST", "/jobs/{id}/requirements", "", Source.update_requirements),
}
"""The forms of the pages, by the last part of the address to which they are sent. A form's fields are the route's parameters."""
