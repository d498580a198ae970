"""The table of REST: what there is to ask for, under ``/api/v1``. Routes, their OpenAPI document and its page are made of it.

Names are Flink's where Flink has the resource. The function of a route takes the source and the request's values, by name and as of
their kinds, and returns a view; of those that change something, None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from firesteel.ui.catalog.source import Source
from firesteel.ui.views.comparing import Comparison, WhatIf
from firesteel.ui.views.rest import AttemptRow, Requirements, SubtaskAttempts
from firesteel.ui.views.structs import (
    MOST_ITEMS,
    Attempt,
    Decision,
    Failure,
    Job,
    JobSummary,
    NodeUse,
    Option,
    Page,
    Rescale,
    Script,
    SlotUse,
    Stream,
    Subtask,
    Timeline,
    Vertex,
    VertexSummary,
)

PREFIX = "/api/v1"
Values = Mapping[str, Any]
Kind = Literal["string", "integer", "number"]


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    kind: Kind = "string"
    doc: str = ""
    default: Any = None
    where: Literal["path", "query", "body"] = "query"


@dataclass(frozen=True, slots=True)
class Route:
    """``returns``: the types that the view may have; none: nothing. ``item``: of a table, that of its rows. ``others``: a query may hold
    parameters of any name, which the function finds in its values under "others"."""

    method: str
    path: str
    doc: str
    call: Callable[[Source, Values], Any]
    returns: tuple[Any, ...] = ()
    item: type[Any] | None = None
    parameters: tuple[Parameter, ...] = ()
    others: str = ""

    @property
    def changes(self) -> bool:
        return self.method != "GET"


_ID = Parameter("id", doc="The job's id, as in the list.", where="path")
_VERTEX = Parameter("vertex", "integer", "The vertex' id.", where="path")
_SUBTASK = Parameter("subtask", "integer", "The subtask, from 0.", where="path")
_ONE_VERTEX = Parameter("vertex", "integer", "Of this vertex alone.")
_PAGE = (
    Parameter("offset", "integer", "Number of the first item, from 0.", 0),
    Parameter("limit", "integer", f"Most items of the answer; at most {MOST_ITEMS}.", 100),
)
_BOUNDS = (
    Parameter("lower", "integer", "The lower bound; as it is where it is left out.", where="body"),
    Parameter("upper", "integer", "The upper bound.", where="body"),
)


def _paged(values: Values) -> dict[str, Any]:
    return {"offset": values["offset"], "limit": values["limit"]}


def _list(path: str, doc: str, **fixed: str) -> Route:
    parameters = (
        Parameter("text", doc="A part of a name or id.", default=""),
        Parameter("status", doc="running, finished, failed, cancelled, broken off, unfinished or damaged.", default=""),
        Parameter("kind", doc="job, stream or script.", default=""),
        Parameter("sort", doc='A field of the items; "-" before it: descending.', default="-began"),
    )
    own = tuple(each for each in parameters if each.name not in fixed)

    def call(source: Source, values: Values) -> Page[JobSummary]:
        return source.jobs(**{**{each.name: values[each.name] for each in own}, **fixed}, **_paged(values))

    return Route("GET", path, doc, call, (Page[JobSummary],), JobSummary, (*own, *_PAGE))


ROUTES = (
    _list("/jobs", "Jobs, streams and accelerated scripts, the latest first."),
    _list("/streams", "Streams, the latest first.", kind="stream"),
    Route(
        "GET", "/jobs/{id}", "A job, a stream or a script: its state, and what is known of it as a whole.",
        lambda source, values: source.job(values["id"]), (Job, Stream, Script), None, (_ID,),
    ),
    Route(
        "PATCH", "/jobs/{id}", "Cancels a job or stream of this process, or a stream of this machine.",
        lambda source, values: source.terminate(values["id"], values["mode"]), (), None,
        (_ID, Parameter("mode", doc='"cancel".', default="cancel")),
    ),
    Route(
        "POST", "/jobs/{id}/stop", "Stops a stream once its running batch has committed; its checkpoint is the savepoint.",
        lambda source, values: source.stop(values["id"]), (), None, (_ID,),
    ),
    Route(
        "GET", "/jobs/{id}/config", "The options of a job that are not defaults.",
        lambda source, values: source.options(values["id"], **_paged(values)), (Page[Option],), Option, (_ID, *_PAGE),
    ),
    Route(
        "GET", "/jobs/{id}/exceptions", "Attempts that failed, the latest first.",
        lambda source, values: source.failures(values["id"], **_paged(values)), (Page[Failure],), Failure, (_ID, *_PAGE),
    ),
    Route(
        "GET", "/jobs/{id}/decisions", "Every decision and its reason, in order.",
        lambda source, values: source.decisions(
            values["id"], what=values["what"], vertex=values["vertex"], **_paged(values)
        ),
        (Page[Decision],), Decision,
        (_ID, Parameter("what", doc='"parallelism", "failover", ...', default=""), _ONE_VERTEX, *_PAGE),
    ),
    Route(
        "GET", "/jobs/{id}/attempts", "Every execution of every subtask.",
        lambda source, values: source.all_attempts(values["id"], vertex=values["vertex"], **_paged(values)),
        (Page[AttemptRow],), AttemptRow, (_ID, _ONE_VERTEX, *_PAGE),
    ),
    Route(
        "GET", "/jobs/{id}/timeline", "Attempts per node and slot, as many marks as a picture has room for.",
        lambda source, values: source.timeline(
            values["id"], vertex=values["vertex"], begin=values["begin"], end=values["end"]
        ),
        (Timeline,), None,
        (
            _ID, _ONE_VERTEX, Parameter("begin", "number", "Seconds since the job began."),
            Parameter("end", "number", "Seconds since the job began."),
        ),
    ),
    Route(
        "GET", "/jobs/{id}/slots", "Slots in use and waited for over time, by slot sharing group.",
        lambda source, values: source.slots(values["id"]), (list[SlotUse],), None, (_ID,),
    ),
    Route(
        "GET", "/jobs/{id}/nodes", "What each node ran of a job, the busiest first.",
        lambda source, values: source.nodes(values["id"], **_paged(values)), (Page[NodeUse],), NodeUse, (_ID, *_PAGE),
    ),
    Route(
        "GET", "/jobs/{id}/what-if", "Its decisions with other options, beside the real ones.",
        lambda source, values: source.what_if(values["id"], values["others"]), (WhatIf,), None, (_ID,),
        others="Options of the decider and of joins, by any of their names.",
    ),
    Route(
        "GET", "/jobs/{id}/compare/{other}", "This job (right) beside another one (left).",
        lambda source, values: source.comparison(values["other"], values["id"]), (Comparison,), None,
        (_ID, Parameter("other", doc="The other job's id.", where="path")),
    ),
    Route(
        "GET", "/jobs/{id}/vertices", "The vertices of a job.",
        lambda source, values: source.vertices(values["id"], **_paged(values)),
        (Page[VertexSummary],), VertexSummary, (_ID, *_PAGE),
    ),
    Route(
        "GET", "/jobs/{id}/vertices/{vertex}", "One vertex: its decisions, ranges, stragglers, nodes, failures.",
        lambda source, values: source.vertex(values["id"], values["vertex"]), (Vertex,), None, (_ID, _VERTEX),
    ),
    Route(
        "GET", "/jobs/{id}/vertices/{vertex}/subtasktimes", "The subtasks of a vertex, with bytes, node and duration.",
        lambda source, values: source.subtasks(
            values["id"], values["vertex"], state=values["state"], sort=values["sort"], **_paged(values)
        ),
        (Page[Subtask],), Subtask,
        (
            _ID, _VERTEX, Parameter("state", doc="RUNNING, FINISHED, ...", default=""),
            Parameter("sort", doc='A field of the items; "-" before it: descending.', default="index"), *_PAGE,
        ),
    ),
    Route(
        "GET", "/jobs/{id}/vertices/{vertex}/subtasks/{subtask}", "One subtask and all of its attempts.",
        lambda source, values: source.subtask(values["id"], values["vertex"], values["subtask"]),
        (SubtaskAttempts,), None, (_ID, _VERTEX, _SUBTASK),
    ),
    Route(
        "GET", "/jobs/{id}/vertices/{vertex}/subtasks/{subtask}/attempts/{attempt}", "One attempt.",
        lambda source, values: source.attempt(values["id"], values["vertex"], values["subtask"], values["attempt"]),
        (Attempt,), None,
        (_ID, _VERTEX, _SUBTASK, Parameter("attempt", "integer", "The attempt, from 0.", where="path")),
    ),
    Route(
        "GET", "/jobs/{id}/rescales", "Rescales of a stream, the latest first.",
        lambda source, values: source.rescales(values["id"], **_paged(values)), (Page[Rescale],), Rescale, (_ID, *_PAGE),
    ),
    Route(
        "PATCH", "/jobs/{id}/rescaling", "Asks a stream for a parallelism now, whatever the downtime.",
        lambda source, values: source.rescale(values["id"], values["parallelism"]), (), None,
        (_ID, Parameter("parallelism", "integer", "Partitions; where it is left out, those that are wanted already.")),
    ),
    Route(
        "GET", "/jobs/{id}/resource-requirements", "The bounds of a stream's parallelism.",
        lambda source, values: source.requirements(values["id"]), (Requirements,), None, (_ID,),
    ),
    Route(
        "PUT", "/jobs/{id}/resource-requirements", "Changes the bounds of a stream's parallelism.",
        lambda source, values: source.update_requirements(values["id"], values["lower"], values["upper"]),
        (), None, (_ID, *_BOUNDS),
    ),
)  # fmt: skip
EVENTS = f"{PREFIX}/jobs/{{id}}/events"
"""Server-sent events of a job that runs: a Pulse each time that something has changed."""
