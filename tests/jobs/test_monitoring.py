"""A whole job with metrics, traces and lineage on, in a process of its own, against real receivers; and against none."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.openlineage_kit import validated
from tests.receivers import receiver

TESTS = Path(__file__).parents[1]
EXIT_SECONDS = 30
"""At most 5 s are waited for receivers; the rest is for a busy machine."""

_DRIVER = """
import logging, sys, time
import pyarrow.compute as pc
sys.path[:0] = [sys.argv[1]]
from plane.session import Session
from firesteel import ExecutionEnvironment, col

if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="LOG %(name)s %(message)s")
    _, _, folder, kind = sys.argv
    env = ExecutionEnvironment(spark=Session(slots=2), options={
        "firesteel.progress": False, "firesteel.journal.directory": f"{folder}/journal",
        "firesteel.storage.directory": f"{folder}/storage", "restart-strategy.type": "none" if kind != "left" else "fixed-delay", "restart-strategy.fixed-delay.delay": "1000 s",
        "firesteel.metrics.prometheus.port": 0, "firesteel.traces.opentelemetry.enabled": True,
        "firesteel.metrics.opentelemetry.enabled": True, "firesteel.lineage.openlineage.enabled": True,
    })
    rows = env.read_parquet(f"{folder}/in").filter(col("v") > 0).with_column("w", col("v") * 2)
    if kind != "finishes":
        rows = rows.with_column("w", col("v") / 0)
    rows.key_by("k").aggregate({"w": "sum"}).write_parquet(f"{folder}/out")
    if kind == "left":  # while it waits for its restart
        client = env.execute_async("monitored")
        while client.status().name != "RESTARTING":
            time.sleep(0.05)
        sys.exit()
    try:
        env.execute("monitored")
    except Exception as error:
        print(type(error).__name__)
    from prometheus_client import generate_latest
    from firesteel.monitoring import prometheus
    text, until = "", time.monotonic() + 60
    while 'job="monitored"' not in text and time.monotonic() < until:  # records are told once a second
        time.sleep(0.02)
        text = generate_latest(prometheus.registry(prometheus.BOARD)).decode()
    print(f"OVER {time.time()}")
    print("SHOWN", 'firesteel_job_status' in text and 'job="monitored"' in text)
"""


def drive(tmp_path, kind, url, **environ):
    """Runs the job; returns the process and the seconds that it took to end when all was done."""
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"k": [1, 1, 2, 3], "v": [1, 2, 3, -4]}), tmp_path / "in" / "a.parquet")
    script = tmp_path / "driver.py"
    script.write_text(_DRIVER)
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OPENLINEAGE_URL": url,
        "OPENLINEAGE_NAMESPACE": "tests",
        "PYTHONPATH": os.pathsep.join((str(TESTS.parent / "src"), str(TESTS.parent), str(TESTS / "plain"))),
    } | environ
    command = [sys.executable, str(script), str(TESTS), str(tmp_path), kind]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=300, env={**os.environ, **environ}, cwd=tmp_path
    )
    over = [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("OVER ")]
    return done, time.time() - over[0] if over else 0.0


@pytest.fixture
def finished(tmp_path):
    with receiver() as received:
        parent = "a/dag/0d8f9b4e-0000-4000-8000-000000000001"
        done, _ = drive(tmp_path, "finishes", received.url, OPENLINEAGE_PARENT_ID=parent)
        assert done.returncode == 0, done.stderr
        assert "SHOWN True" in done.stdout, done.stderr
        assert "LOG firesteel" not in done.stderr
        yield received


def test_receivers_are_told_all_before_the_process_ends(finished, tmp_path):
    spans = {span.name: span for span in finished.spans()}
    job = spans["monitored"]
    assert {span.trace_id for span in spans.values()} == {job.trace_id}
    source = next(span for name, span in spans.items() if "read_parquet" in name)
    assert source.parent_span_id == job.span_id and spans["attempt"].end_time_unix_nano > 0
    assert any(event.name == "decision: source parallelism" for event in source.events)

    metrics = finished.metrics()
    assert metrics["firesteel.job.num_restarts"].sum.data_points[0].as_int == 0
    read = {point.as_int for point in metrics["firesteel.vertex.num_records_in"].gauge.data_points}
    assert read == {2, 4}  # rows of the source, and one for each key of each of its subtasks

    events = [validated(event) for event in finished.events()]
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "COMPLETE"]
    assert len({event["run"]["runId"] for event in events}) == 1
    last = events[-1]
    (read,), (written,) = last["inputs"], last["outputs"]
    assert (read["namespace"], read["name"]) == ("file", str(tmp_path / "in"))
    assert read["inputFacets"]["inputStatistics"]["rowCount"] == 4
    assert [field["name"] for field in read["facets"]["schema"]["fields"]] == ["k", "v"]
    assert written["name"] == str(tmp_path / "out") and written["outputFacets"]["outputStatistics"]["rowCount"] == 2
    lineage = written["facets"]["columnLineage"]
    summed = next(name for name in lineage["fields"] if name != "k")
    (origin,) = lineage["fields"][summed]["inputFields"]
    assert (origin["field"], origin["transformations"]) == ("v", [{"type": "DIRECT", "subtype": "AGGREGATION"}])
    decided = {(one["field"], one["transformations"][0]["subtype"]) for one in lineage["dataset"]}
    assert decided == {("v", "FILTER"), ("k", "GROUP_BY")}
    facets = last["run"]["facets"]
    parent = facets["parent"]["job"]
    assert (parent["namespace"], parent["name"]) == ("a", "dag")
    assert {"parallelism", "source parallelism"} <= {one["what"] for one in facets["firesteel_decisions"]["decisions"]}
    assert last["job"]["facets"]["jobType"]["processingType"] == "BATCH" and last["job"]["namespace"] == "tests"


@pytest.mark.full
def test_a_failure_is_told_with_its_cause_and_no_rows(tmp_path):
    with receiver() as received:
        done, _ = drive(tmp_path, "fails", received.url)
    assert done.stdout.splitlines()[0] == "JobExecutionError", done.stderr
    events = [validated(event) for event in received.events()]
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "FAIL"]
    error = events[-1]["run"]["facets"]["errorMessage"]
    assert "DIVIDE_BY_ZERO" in error["message"] and error["programmingLanguage"] == "python"
    assert not events[-1]["outputs"][0].get("outputFacets")
    job = next(span for span in received.spans() if span.name == "monitored")
    assert job.status.code == 2 and "DIVIDE_BY_ZERO" in job.status.message


@pytest.mark.full
@pytest.mark.parametrize("status", [None, 503])
def test_receivers_that_are_gone_cost_the_job_nothing_and_are_told_of_once(tmp_path, status):
    with receiver(status or 200) as received:
        url = received.url if status else "http://127.0.0.1:9"
        done, seconds = drive(tmp_path, "finishes", url, OTEL_EXPORTER_OTLP_TIMEOUT="1")
    assert done.returncode == 0 and "SHOWN True" in done.stdout, done.stderr
    assert (tmp_path / "out" / "_SUCCESS").exists()
    told = [line for line in done.stderr.splitlines() if line.startswith("LOG firesteel")]
    assert len(told) == len(set(told)) and any("Traces cannot be sent" in line for line in told), done.stderr
    assert seconds < EXIT_SECONDS


@pytest.mark.full
def test_a_job_that_its_process_leaves_is_told_as_aborted(tmp_path):
    with receiver() as received:
        done, _ = drive(tmp_path, "left", received.url)
    assert done.returncode == 0, done.stderr
    assert [event["eventType"] for event in received.events()][-1] == "ABORT"
    job = next(span for span in received.spans() if span.name == "monitored")
    assert {"firesteel.job.status": "CANCELED"}.items() <= {a.key: a.value.string_value for a in job.attributes}.items()
