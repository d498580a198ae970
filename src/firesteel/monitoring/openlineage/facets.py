"""Facets of runs and jobs, among them one of our own: the decisions that were taken. Its schema is ``DecisionsRunFacet.json``, beside this module."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from uuid import UUID

import attr
from openlineage.client.event_v2 import RunEvent
from openlineage.client.facet_v2 import (
    JobFacet,
    RunFacet,
    error_message_run,
    job_type_job,
    parent_run,
    processing_engine_run,
)

from firesteel.scheduler.kernel.records import Decision

MOST_DECISIONS = 100
"""Of one run; further ones are counted."""
MOST_CHARACTERS = 500
"""Of each text in them."""
DECISIONS = "firesteel_decisions"
SCHEMA = "urn:firesteel:openlineage:1-0-0:DecisionsRunFacet.json"
"""The id of the schema."""


def _version() -> str:
    try:
        return version("firesteel")
    except PackageNotFoundError:  # from a folder or a zip
        return "0"


VERSION = _version()
PRODUCER = f"urn:firesteel:{VERSION}"


@attr.define
class DecisionsRunFacet(RunFacet):
    decisions: list[dict[str, Any]]
    leftOut: int  # noqa: N815 - as OpenLineage writes names
    """Decisions beyond the first MOST_DECISIONS."""

    @staticmethod
    def _get_schema() -> str:
        return f"{SCHEMA}#/$defs/DecisionsRunFacet"


def decisions_facet(decisions: Sequence[Decision], left_out: int, names: dict[int, str]) -> DecisionsRunFacet:
    """``names``: of vertices."""
    return DecisionsRunFacet([_decision(decision, names) for decision in decisions], left_out)


def _decision(decision: Decision, names: dict[int, str]) -> dict[str, Any]:
    told: dict[str, Any] = {"what": decision.what, "seconds": decision.at}
    if decision.vertex is not None:
        told |= {"vertex": decision.vertex, "name": names.get(decision.vertex, "")}
    texts = {"rule": decision.rule, "result": str(decision.result), "reason": decision.reason}
    return told | {name: text[:MOST_CHARACTERS] for name, text in texts.items() if text}


def job_facets(streaming: bool) -> dict[str, JobFacet]:
    kind = "STREAMING" if streaming else "BATCH"
    return {"jobType": job_type_job.JobTypeJobFacet(kind, "FIRESTEEL", jobType="JOB")}


def run_facets() -> dict[str, RunFacet]:
    """The facets of every event."""
    engine = processing_engine_run.ProcessingEngineRunFacet(
        VERSION, name="firesteel", openlineageAdapterVersion=VERSION
    )
    parent = _parent()
    return {"processing_engine": engine, **({} if parent is None else {"parent": parent})}


def error_facet(cause: str) -> dict[str, RunFacet]:
    """``cause``: a sentence, and what Python said below it."""
    message, _, trace = cause.partition("\n")
    return {
        "errorMessage": error_message_run.ErrorMessageRunFacet(
            message or "No cause is known.", "python", stackTrace=trace or None
        )
    }


def _parent() -> RunFacet | None:
    """The run that started this process, as OPENLINEAGE_PARENT_ID has it: namespace/name/run id. One that cannot be read is left out."""
    parts = os.environ.get("OPENLINEAGE_PARENT_ID", "").rsplit("/", 2)
    try:
        namespace, name, run = parts
        run = str(UUID(run))
    except ValueError:
        return None
    return parent_run.ParentRunFacet(parent_run.Run(run), parent_run.Job(namespace, name))


def sign(event: RunEvent) -> None:
    """The library says of facets that it made them itself."""
    parts: list[Any] = [event.run.facets, event.job.facets]
    for dataset in (*(event.inputs or ()), *(event.outputs or ())):
        parts += [dataset.facets, getattr(dataset, "inputFacets", None), getattr(dataset, "outputFacets", None)]
    for facet in (facet for part in parts for facet in (part or {}).values()):
        facet._producer = PRODUCER  # pyright: ignore[reportPrivateUsage]
