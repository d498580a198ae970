"""Events of OpenLineage made of records, valid by its schemas; and their way to a receiver."""

from __future__ import annotations

import threading

import pytest
from jsonschema import ValidationError
from msgspec.structs import replace
from openlineage.client.serde import Serde
from tests.openlineage_kit import validated

from firesteel.monitoring.openlineage import DECISIONS, MOST_DECISIONS, Emitter, LineageExporter, run_id
from firesteel.scheduler.kernel.records import Decision, GraphChanged, JobStatusRecord, MetricsSnapshot
from journal_samples import planned, word_count
from stream_samples import words

ARRIVED = 1_700_000_000.0
READ = {"vertex": 0, "namespace": "s3://b", "name": "in", "columns": [["text", "string"], ["n", "int64"]]}
WRITTEN = {
    "vertex": 1,
    "namespace": "file",
    "name": "/out",
    "columns": [["word", "string"], ["count", "int64"]],
    "origins": {"word": [[0, "text", "TRANSFORMATION"]]},
    "decided_by": [[0, "n", "FILTER"], [0, "text", "GROUP_BY"]],
}
PLAN = replace(planned(), inputs=[READ], outputs=[WRITTEN])


def events(records, often=60.0):
    """As they are sent."""
    found = []
    exporter = LineageExporter(found.append, often=often)
    for record in records:
        exporter.apply(record, ARRIVED + record.at)
    exporter.close(0)
    return [validated(Serde.to_dict(event)) for event in found]


def kinds(found):
    return [event["eventType"] for event in found]


def test_a_job_is_told_from_start_to_end():
    found = events([PLAN, *word_count()[1:]])
    assert kinds(found) == ["START", "RUNNING", "COMPLETE"]
    assert {event["run"]["runId"] for event in found} == {run_id("3f2a91c0")}
    assert found[0]["eventTime"] == "2023-11-14T22:15:00.000Z"
    last = found[-1]
    (read,), (written,) = last["inputs"], last["outputs"]
    assert read["inputFacets"]["inputStatistics"]["rowCount"] == 1000
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 200
    lineage = written["facets"]["columnLineage"]
    assert lineage["fields"] == {
        "word": {
            "inputFields": [
                {
                    "namespace": "s3://b",
                    "name": "in",
                    "field": "text",
                    "transformations": [{"type": "DIRECT", "subtype": "TRANSFORMATION"}],
                }
            ]
        }
    }
    assert [(one["field"], one["transformations"]) for one in lineage["dataset"]] == [
        ("n", [{"type": "INDIRECT", "subtype": "FILTER"}]),
        ("text", [{"type": "INDIRECT", "subtype": "GROUP_BY"}]),
    ]
    assert "outputStatistics" not in found[1]["outputs"][0].get("outputFacets", {})
    decided = last["run"]["facets"][DECISIONS]
    assert [one["what"] for one in decided["decisions"]] == ["source parallelism", "restart", "parallelism"]
    assert decided["leftOut"] == 0 and decided["_producer"].startswith("urn:firesteel:")
    assert decided["decisions"][0]["name"] == "text src/**/*.py -> tokenize"


def test_it_runs_on_and_is_told_of_no_more_often_than_was_said():
    assert kinds(events([PLAN, *word_count()[1:]], often=1.0)) == ["START", *3 * ["RUNNING"], "COMPLETE"]


@pytest.mark.parametrize(
    ("status", "cause", "kind"),
    [("FAILED", "It broke.\nTraceback: x", "FAIL"), ("FAILED", "", "FAIL"), ("CANCELED", "by the user", "ABORT")],
)
def test_other_ends(status, cause, kind):
    found = events([PLAN, JobStatusRecord(at=101.0, status=status, cause=cause)])
    assert kinds(found) == ["START", kind]
    told = found[-1]["run"]["facets"].get("errorMessage")
    if kind == "FAIL":
        assert told["message"] == (cause.splitlines() or ["No cause is known."])[0]
    else:
        assert told is None


def test_a_job_that_broke_off_without_a_word_has_no_end():
    """It may go on under another driver, as the same run."""
    assert kinds(events([PLAN, JobStatusRecord(at=101.0, status="RUNNING")])) == ["START", "RUNNING"]


def test_rows_are_told_only_where_they_are_known():
    """Not of a source that another vertex has absorbed, of one of two sources in a vertex, of a sink that may leave rows out."""
    snapshot = MetricsSnapshot(at=101.0, vertices={0: {"numRecordsIn": 7}, 1: {"numRecordsIn": 7, "numRecordsOut": 5}})
    end = JobStatusRecord(at=102.0, status="FINISHED")
    absorbed = GraphChanged(at=100.5, absorbed=0, into=1, vertex={"name": "both"})
    assert not events([PLAN, absorbed, snapshot, end])[-1]["inputs"][0]["inputFacets"]
    two = replace(PLAN, inputs=[READ, {**READ, "name": "other"}])
    assert not any(one["inputFacets"] for one in events([two, snapshot, end])[-1]["inputs"])
    uncounted = replace(PLAN, outputs=[{**WRITTEN, "counted": False}])
    assert not events([uncounted, snapshot, end])[-1]["outputs"][0]["outputFacets"]
    twice = replace(PLAN, inputs=[READ, {**READ, "vertex": 2}], vertices=[*PLAN.vertices, {"id": 2, "name": "again"}])
    more = MetricsSnapshot(at=101.5, vertices={2: {"numRecordsIn": 3}})
    (both,) = events([twice, snapshot, more, end])[-1]["inputs"]
    assert both["inputFacets"]["inputStatistics"]["rowCount"] == 10


def test_very_many_decisions_are_counted_and_secrets_masked():
    many = [Decision(at=100.1, what="restart", reason="token=abcdef0123456789")] * (MOST_DECISIONS + 5)
    plan = replace(PLAN, job_name="copy postgres://me:hunter2secret@db/x")
    found = events([plan, *many, JobStatusRecord(at=101.0, status="FINISHED")])
    facet = found[-1]["run"]["facets"][DECISIONS]
    assert len(facet["decisions"]) == MOST_DECISIONS and facet["leftOut"] == 5
    assert "abcdef0123456789" not in str(found) and "hunter2secret" not in str(found)


def test_a_stream_is_told_as_streaming():
    found = events(words())
    assert kinds(found) == ["START", "RUNNING", "COMPLETE"]
    assert {event["job"]["facets"]["jobType"]["processingType"] for event in found} == {"STREAMING"}


def test_the_schemas_refuse_what_is_wrong():
    (event, *_) = events([PLAN])
    facet = {
        "_producer": "urn:x",
        "_schemaURL": "urn:firesteel:openlineage:1-0-0:DecisionsRunFacet.json#/$defs/DecisionsRunFacet",
    }
    event["run"]["facets"][DECISIONS] = {**facet, "decisions": [{"what": 3}], "leftOut": 0}
    with pytest.raises(ValidationError):
        validated(event)


class Client:
    def __init__(self, gate=None, broken=False):
        self.sent, self.busy = [], threading.Event()
        self._gate, self._broken = gate, broken

    def emit(self, event):
        self.busy.set()
        if self._gate is not None:
            assert self._gate.wait(30)
        if self._broken:
            raise ConnectionError("nobody listens\nat all")
        self.sent.append(event)


def test_a_receiver_that_fails_is_told_of_once(caplog):
    emitter = Emitter(Client(broken=True))
    for number in range(3):
        emitter.emit(number)
    assert emitter.flush(30) and emitter.dropped == 3
    (told,) = caplog.records
    assert told.getMessage() == (
        "Lineage cannot be sent by OpenLineage: nobody listens. Jobs go on; what cannot be sent is dropped, and not told of again."
    )


def test_a_receiver_that_hangs_keeps_nobody_waiting():
    gate = threading.Event()
    client = Client(gate)
    emitter = Emitter(client, most=2)
    emitter.emit(0)
    assert client.busy.wait(30)
    for number in range(1, 6):
        emitter.emit(number)
    assert emitter.dropped == 3 and not emitter.flush(0.01)
    gate.set()
    assert emitter.flush(30) and client.sent == [0, 1, 2]
