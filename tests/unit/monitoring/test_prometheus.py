"""The metrics page: names and numbers, few of them however many jobs and vertices there are; the small server; the dashboard."""

from __future__ import annotations

import json
import re
import socket
import urllib.request
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.simulation.random_jobs import random_job

from firesteel.errors import UsageError
from firesteel.journal.scripts import QueryRecord, ScriptEnded, ScriptPlanned
from firesteel.monitoring import prometheus
from firesteel.monitoring.numbers import (
    COUNTERS,
    FAMILIES,
    KEPT_SECONDS,
    MOST_JOBS,
    MOST_VERTICES,
    OF_JOBS,
    OF_VERTICES,
    Board,
    NumbersExporter,
)
from firesteel.options import Options
from firesteel.scheduler.kernel.records import Decision, JobStatusRecord, MetricsSnapshot
from journal_samples import mirrored, planned, word_count
from stream_samples import words

ROOT = Path(__file__).resolve().parents[3]
JOB = {"job_id": "3f2a91c0", "job": "word count"}


def told(board, records, arrived=1000.0):
    exporter = NumbersExporter(board)
    for record in records:
        exporter.apply(record, arrived)
    return exporter


def page(board):
    """Sample name and labels to value."""
    text = generate_latest(prometheus.registry(board)).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(**labels):
    return frozenset(labels.items())


def test_a_jobs_numbers_have_the_registrys_names():
    board = Board(lambda: 1010.0)
    told(board, word_count())
    found = page(board)
    aggregate = of(**JOB, vertex="1", name="aggregate by word -> parquet out")
    assert found["firesteel_job_numRestarts_total", of(**JOB)] == 1
    assert found["firesteel_vertex_numRecordsIn", aggregate] == 5000
    assert found["firesteel_vertex_numFinishedTasks", aggregate] == 1
    assert (
        found["firesteel_vertex_numBytesProduced", of(**JOB, vertex="0", name="text src/**/*.py -> tokenize")]
        == 3 << 20
    )
    assert found["firesteel_job_status", of(**JOB, status="FINISHED")] == 1
    assert found["firesteel_job_decisions_total", of(**JOB, what="restart")] == 1
    assert found["firesteel_job_uptime_seconds", of(**JOB)] == 0


def test_a_streams_numbers_are_sums_and_its_last_batch():
    board = Board(lambda: 1010.0)
    told(board, words())
    stream = {"stream_id": "3f2a91c0", "stream": "words"}
    found = page(board)
    assert found["firesteel_stream_batches_total", of(**stream)] == 3
    assert found["firesteel_stream_numRecordsIn_total", of(**stream)] == 3000
    assert found["firesteel_stream_parallelism", of(**stream)] == 8
    assert found["firesteel_stream_rescales_total", of(**stream, end="completed")] == 1
    assert found["firesteel_stream_status", of(**stream, status="FINISHED")] == 1
    assert ("firesteel_stream_backlog", of(**stream)) not in found  # the source does not say


def test_a_scripts_checks_are_counted_by_their_ends():
    board = Board(lambda: 1010.0)
    query = QueryRecord(at=1.0, number=1, action="count", left=[])
    asked = [query, query, replace(query, left=["it reads 1 KiB"])]
    asked += [replace(query, check=end) for end in ("same", "same", "differs", "skipped")]
    told(
        board, [ScriptPlanned(at=0.0, script_id="3f", name="report.py"), *asked, ScriptEnded(at=2.0, status="FINISHED")]
    )
    found, script = page(board), {"script_id": "3f", "script": "report.py"}
    assert [found["firesteel_script_queries_total", of(**script, by=by)] for by in ("firesteel", "spark")] == [6, 1]
    ends = ("same", "differs", "skipped")
    assert [found["firesteel_script_checks_total", of(**script, end=end)] for end in ends] == [2, 1, 1]


def test_very_many_vertices_and_jobs_are_bounded():
    now = 1000.0
    board = Board(lambda: now)
    vertices = [{"id": number, "name": f"v{number}", "inputs": []} for number in range(3 * MOST_VERTICES)]
    numbers = {number: {"parallelism": 1, "step.rows_failed": 1} for number in range(len(vertices))}
    told(board, [replace(planned(), vertices=vertices), MetricsSnapshot(at=100.0, job={}, vertices=numbers)])
    shown = {dict(labels)["vertex"] for name, labels in page(board) if name == "firesteel_vertex_parallelism"}
    assert len(shown) == MOST_VERTICES
    assert page(board)["firesteel_job_vertices_left_out", of(**JOB)] == 2 * MOST_VERTICES
    for number in range(2 * MOST_JOBS):
        told(board, [replace(planned(), job_id=f"j{number}"), JobStatusRecord(at=1.0, status="FINISHED")], now + number)
    jobs = {dict(labels)["job_id"] for name, labels in page(board) if name == "firesteel_job_status"}
    assert len(jobs) == MOST_JOBS and {"3f2a91c0", f"j{2 * MOST_JOBS - 1}"} <= jobs  # one that runs, and the newest
    now += 2 * MOST_JOBS + KEPT_SECONDS
    assert {dict(labels)["job_id"] for _, labels in page(board)} == {"3f2a91c0"}


def test_a_job_that_broke_off_is_let_go_as_well():
    now = 1000.0
    board = Board(lambda: now)
    told(board, [planned()]).close(dropped=3)
    assert page(board)["firesteel_job_dropped_records_total", of(**JOB)] == 3
    now += KEPT_SECONDS + 1
    assert page(board) == {}


def test_secrets_in_names_are_masked():
    board = Board()
    vertices = [{"id": 0, "name": "read s3://bucket?secret_key=abcdefgh", "inputs": []}]
    told(board, [replace(planned(), vertices=vertices), MetricsSnapshot(at=1.0, vertices={0: {"parallelism": 1}})])
    text = generate_latest(prometheus.registry(board)).decode()
    assert "abcdefgh" not in text and "secret_key=***" in text


def test_every_number_of_the_registry_has_a_family():
    """As random jobs with slots and speculation write them."""
    names, vertex_names = set(), set()

    class Seen:
        def record(self, record):
            if isinstance(record, MetricsSnapshot):
                names.update(record.job)
                vertex_names.update(name for numbers in record.vertices.values() for name in numbers if "." not in name)

        def close(self):
            pass

    for seed in range(6):
        try:
            random_job(seed, resources=seed % 2 == 0).simulated(Seen()).run()
        except UsageError:  # a group that no worker can hold
            continue
    assert {"numRestarts", "numSlowExecutionVertices"} <= names <= set(OF_JOBS)
    assert {"numRecordsIn", "numBytesConsumed"} <= vertex_names <= set(OF_VERTICES)
    sources = "".join(path.read_text() for path in (ROOT / "src" / "firesteel" / "scheduler").rglob("*.py"))
    assert set(re.findall(r'\.counter\("(\w+)"\)', sources)) == set(COUNTERS)


def test_a_port_serves_the_page_and_a_taken_one_is_told_once(caplog):
    told(prometheus.BOARD, [replace(planned(), job_name="served"), Decision(at=1.0, what="restart")])
    port = prometheus.serve("127.0.0.1", 0)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        assert b'job="served"' in answer.read()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        options = Options({"firesteel.metrics.prometheus.port": taken.getsockname()[1]})
        for _ in range(2):
            prometheus.exporter(options)
    assert [record.getMessage() for record in caplog.records if "cannot be served" in record.getMessage()] == [
        f"Metrics cannot be served at 127.0.0.1 port {options['firesteel.metrics.prometheus.port']}: "
        "Address already in use. The jobs go on without."
    ]


def test_the_port_must_be_one():
    with pytest.raises(UsageError, match="must be a port"):
        Options({"firesteel.metrics.prometheus.port": 70_000})


def test_the_dashboard_shows_metrics_that_there_are():
    text = (ROOT / "docs" / "grafana.json").read_text()
    expressions = [target["expr"] for panel in json.loads(text)["panels"] for target in panel.get("targets", [])]
    ends = {"counter": "_total", "gauge": ""}
    known = {f"firesteel_{one.name}{ends[one.kind]}": set(one.labels) for one in FAMILIES}
    shown = set()
    for expression in expressions:
        names = re.findall(r"\bfiresteel_\w+", expression)
        assert names and set(names) <= set(known), expression
        labels = set().union(*(known[name] for name in names))
        by = [
            label
            for group in re.findall(r"(?:by|on|group_left) ?\(([^)]*)\)", expression)
            for label in group.split(",")
        ]
        used = {label.strip() for label in by if label.strip()} | set(re.findall(r"[{,]\s*(\w+)\s*=~?", expression))
        assert used <= labels, expression
        shown |= set(names)
    assert {"firesteel_job_status", "firesteel_vertex_numRecordsIn", "firesteel_stream_parallelism"} <= shown


def test_mirrored_jobs_tell_their_effective_mirrors():
    board = Board()
    told(board, [*mirrored(), MetricsSnapshot(at=200.0, job={"numEffectiveSpeculativeExecutions": 1}, vertices={})])
    assert page(board)["firesteel_job_numEffectiveSpeculativeExecutions_total", of(**JOB)] == 1
