"""What a stream tells: its folders in the journal and to lineage, its batches and rescale as metrics and spans."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from openlineage.client.serde import Serde
from opentelemetry import context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.openlineage_kit import validated

from firesteel.journal.file import read
from firesteel.monitoring.background import Background
from firesteel.monitoring.numbers import Board, NumbersExporter, samples
from firesteel.monitoring.openlineage import LineageExporter
from firesteel.monitoring.tracing import SpansExporter
from firesteel.scheduler.streaming.records import StreamDatasets
from firesteel.streaming import AdaptiveStream

pytestmark = [pytest.mark.spark, pytest.mark.full]


def test_a_stream_of_folders_tells_of_them(spark, tmp_path):
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"n": [1, 2, 3]}), tmp_path / "in" / "a.parquet")
    source, target = str(tmp_path / "in"), str(tmp_path / "out")

    def build(session):
        rows = session.readStream.schema("n long").parquet(source)
        return rows.writeStream.format("parquet").option("path", target).trigger(availableNow=True)

    events, board, memory = [], Board(), InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    spans = SpansExporter(provider.get_tracer("test"), context.get_current())
    watching = Background([LineageExporter(events.append), NumbersExporter(board), spans])
    options = {"firesteel.progress": False, "firesteel.journal.directory": str(tmp_path / "journal")}
    stream = AdaptiveStream.start(
        build, tmp_path / "chk", options=options, spark=spark, name="copied", instruments=[watching]
    )
    assert stream.await_termination(300)
    assert watching.join(60)

    (told,) = [record for record in read(stream.journal) if isinstance(record, StreamDatasets)]
    assert told.inputs == [{"namespace": "file", "name": source}]
    assert told.outputs == [{"namespace": "file", "name": target}]
    sent = [validated(Serde.to_dict(event)) for event in events]
    assert [event["eventType"] for event in sent] == ["START", "RUNNING", "COMPLETE"]
    last = sent[-1]
    assert [one["name"] for one in last["inputs"] + last["outputs"]] == [source, target]
    assert last["inputs"][0]["inputFacets"]["inputStatistics"]["rowCount"] == 3
    numbers = {family.name: value for family, labels, value in samples(board) if labels[1] == "copied"}
    assert numbers["stream_numRecordsIn"] == 3 and numbers["stream_batches"] == 1
    (span,) = [span for span in memory.get_finished_spans() if span.name == "copied"]
    assert span.attributes["firesteel.stream.rows"] == 3 and span.attributes["firesteel.stream.status"] == "FINISHED"
