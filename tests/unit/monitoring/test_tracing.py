"""Traces: spans of jobs, vertices, attempts and rescales as the SDK's exporter gets them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from opentelemetry import context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from firesteel.monitoring.metering import observe
from firesteel.monitoring.numbers import Board, NumbersExporter
from firesteel.monitoring.tracing import MOST_CHARACTERS, MOST_FINISHED, MOST_ODD, SpansExporter
from firesteel.scheduler.kernel.records import Decision, JobStatusRecord, StateChange
from journal_samples import mirrored, planned, word_count
from stream_samples import words

BEGAN = 1_700_000_000.0


@pytest.fixture
def traced():
    memory = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("test")

    def run(records, dropped=0, parent=None):
        """Spans in the order of their ends. Records arrive when they are told, on a clock that began at BEGAN."""
        exporter = SpansExporter(tracer, parent or context.get_current())
        for record in records:
            exporter.apply(record, BEGAN + record.at)
        exporter.close(dropped)
        return memory.get_finished_spans()

    run.tracer = tracer
    return run


def seconds(span):
    return span.start_time / 1e9 - BEGAN, span.end_time / 1e9 - BEGAN


def named(spans, name):
    return [span for span in spans if span.name == name]


def test_a_job_its_vertices_and_attempts_are_one_trace_below_the_users_span(traced):
    with traced.tracer.start_as_current_span("the user's") as outer:
        parent = context.get_current()
    spans = traced(word_count(), parent=parent)
    job, source, aggregate = (
        named(spans, name)[0]
        for name in ("word count", "text src/**/*.py -> tokenize", "aggregate by word -> parquet out")
    )
    assert job.parent.span_id == outer.get_span_context().span_id
    assert {span.context.trace_id for span in spans} == {outer.get_span_context().trace_id}
    assert source.parent.span_id == aggregate.parent.span_id == job.context.span_id
    assert seconds(job) == pytest.approx((100.0, 104.2))
    assert seconds(source) == pytest.approx((100.1, 102.5))
    assert seconds(aggregate) == pytest.approx((102.6, 103.5))
    attempts = named(spans, "attempt")
    assert {span.parent.span_id for span in attempts} == {source.context.span_id, aggregate.context.span_id}
    told = sorted(
        (*map(round, seconds(s), (1, 1)), s.attributes["firesteel.subtask"], s.attributes["firesteel.attempt"])
        for s in attempts
    )
    assert told == [(100.3, 100.9, 1, 0), (100.3, 102.5, 0, 0), (101.9, 102.5, 1, 1), (102.7, 103.5, 0, 0)]
    (failed,) = [span for span in attempts if not span.status.is_ok]
    assert (
        failed.status.description == "worker lost"
        and failed.events[0].attributes["exception.message"] == "worker lost\nexit code 137"
    )
    assert job.attributes["firesteel.job.status"] == "FINISHED" and job.status.is_unset
    assert source.attributes["firesteel.numRecordsOut"] == 5000 and source.attributes["firesteel.attempts.failed"] == 1
    decided = next(event for event in source.events if event.name == "decision: source parallelism")
    assert decided.attributes["firesteel.decision.result"] == "2"
    assert decided.attributes["firesteel.decision.rule"] == "bytes over data-volume-per-task"
    assert decided.timestamp / 1e9 - BEGAN == pytest.approx(100.1)


def test_mirrors_and_nodes_are_told(traced):
    spans = traced(mirrored())
    mirrors = [span for span in named(spans, "attempt") if span.attributes.get("firesteel.attempt.mirror")]
    assert (mirrors[0].attributes["firesteel.attempt"], mirrors[0].attributes["firesteel.node"]) == (1, "10.0.0.4")
    assert mirrors[0].attributes["firesteel.attempt.state"] == "CANCELED" and mirrors[0].status.is_unset
    (job,) = named(spans, "word count")
    assert "decision: blocklist" in [event.name for event in job.events]


def test_of_very_many_attempts_a_part_has_spans_and_the_rest_is_counted(traced):
    count = 10_000
    subtasks, attempts = list(range(count)), [0] * count
    records = [
        planned(),
        StateChange(at=100.1, vertex=0, state="DEPLOYING", subtasks=subtasks, attempts=attempts),
        StateChange(at=100.2, vertex=0, state="FAILED", subtasks=subtasks[:500], attempts=attempts[:500], cause="x"),
        StateChange(at=100.3, vertex=0, state="FINISHED", subtasks=subtasks[500:], attempts=attempts[500:]),
        JobStatusRecord(at=100.4, status="FINISHED"),
    ]
    spans = traced(records)
    assert len(named(spans, "attempt")) == MOST_FINISHED + MOST_ODD
    told = named(spans, "text src/**/*.py -> tokenize")[0].attributes
    assert told["firesteel.attempts.finished"] == 9_500 and told["firesteel.attempts.failed"] == 500
    assert told["firesteel.attempts.without_span"] == count - MOST_FINISHED - MOST_ODD


def test_how_a_job_ended_is_the_status_of_its_span(traced):
    (failed,) = traced([planned(), JobStatusRecord(at=101.0, status="FAILED", cause="It broke.\nTraceback ...")])
    assert failed.status.description == "It broke." and not failed.status.is_ok
    assert traced([planned(), JobStatusRecord(at=101.0, status="CANCELED")])[-1].status.is_unset
    broken_off = traced([planned(), JobStatusRecord(at=101.0, status="RUNNING")], dropped=2)[-1]
    assert broken_off.status.description == "The job ended without a word of how."
    assert broken_off.attributes["firesteel.dropped_records"] == 2
    assert seconds(broken_off) == pytest.approx((100.0, 101.0))


def test_secrets_are_masked_and_long_texts_cut(traced):
    records = [
        replace(planned(), job_name="copy to postgres://me:hunter2secret@db/x"),
        Decision(at=100.1, what="restart", reason="password=hunter2secret", inputs={"rows": ["x" * 100] * 1000}),
        JobStatusRecord(at=101.0, status="FINISHED"),
    ]
    (job,) = traced(records)
    assert "hunter2secret" not in job.to_json()
    (decided, _) = job.events
    assert len(decided.attributes["firesteel.decision.inputs"]) == MOST_CHARACTERS


def test_a_streams_rescales_are_spans_of_their_own(traced):
    spans = traced(words())
    (stream,) = named(spans, "words")
    rescales = [span for span in spans if span.name.startswith("rescale")]
    assert [span.parent.span_id for span in rescales] == [stream.context.span_id] * 2
    grown = rescales[0]
    assert (
        grown.attributes["firesteel.rescale.parallelism.granted"] == 8
        and grown.attributes["firesteel.rescale.end"] == "completed"
    )
    assert seconds(grown)[0] < seconds(grown)[1]
    assert stream.attributes["firesteel.stream.rows"] == 3000 and seconds(stream) == pytest.approx((100.0, 160.0))
    assert "state: Executing, Cooldown" in [event.name for event in stream.events]


def test_metrics_are_observed_when_they_are_collected():
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    board = Board(lambda: BEGAN)
    observe(provider.get_meter("test"), board, fresh=0.0)
    exporter = NumbersExporter(board)
    for record in word_count()[:-1]:
        exporter.apply(record, BEGAN)

    def collected():
        metrics = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
        return {metric.name: [(dict(p.attributes), p.value) for p in metric.data.data_points] for metric in metrics}

    first = collected()
    job = {"job_id": "3f2a91c0", "job": "word count"}
    assert first["firesteel.job.num_restarts"] == [(job, 1)]
    assert ({**job, "vertex": "1", "name": "aggregate by word -> parquet out"}, 5000) in first[
        "firesteel.vertex.num_records_in"
    ]
    assert first["firesteel.job.status"] == [({**job, "status": "RUNNING"}, 1)]
    exporter.apply(word_count()[-1], BEGAN)
    assert collected()["firesteel.job.status"] == [({**job, "status": "FINISHED"}, 1)]


def test_a_provider_that_the_program_has_set_is_used(monkeypatch):
    from firesteel.monitoring import metering

    provider = TracerProvider(shutdown_on_exit=False)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(metering, "_own_tracer_provider", lambda: pytest.fail("a second provider was made"))
    assert metering.tracer().resource is provider.resource
