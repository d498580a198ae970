"""What the soaks and the benchmark of speculation say of a run: faults planned by seed, errors that are clear, mirrors, seeds done."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.cluster.speculation import rules
from benchmarks.soak import queries
from benchmarks.soak.cluster import Fault, Plan, exit_code, is_clear, leftovers
from benchmarks.soak.cluster import Tally as Jobs
from tests.sql_queries_kit import Tally
from tests.sql_random_kit import EDGES, tables

from firesteel.errors import JobExecutionError, PartitionException
from firesteel.scheduler.kernel.records import Decision, JobPlanned, StateChange
from firesteel.scheduler.recovery.records import LogHeader
from firesteel.spark.recovery.runs import ALL, ScriptRun

ROOT = Path(__file__).resolve().parents[3]
HOSTS = ("a", "b", "c")


def plan(seed: int) -> list[tuple[float, Fault]]:
    made = Plan(seed, every=5.0)
    return [(made.pause(), made.fault(HOSTS)) for _ in range(200)]


def test_a_seed_repeats_the_plan():
    assert plan(3) == plan(3) != plan(4)


def test_all_kinds_of_faults_come_and_each_ends():
    faults = [fault for _, fault in plan(1)]
    assert {fault.kind for fault in faults} == {"kill executor", "kill worker", "freeze", "slow"}
    assert {fault.host for fault in faults} == set(HOSTS)
    assert all(2 <= fault.seconds <= 20 for fault in faults) and all(0 <= pause <= 15 for pause, _ in plan(1))


@pytest.mark.parametrize(
    ("error", "clear"),
    [
        (JobExecutionError("The job 'q1' failed: executor 3 was lost 4 times."), True),
        (JobExecutionError("The job failed.", hint="Did you mean q2?"), True),
        (PartitionException("Partition 3 of data set 1 is damaged."), True),
        (JobExecutionError("The job failed"), False),
        (JobExecutionError("An error occurred while calling o12.run: java.lang.NullPointerException."), False),
        (KeyError("subtask"), False),
    ],
)
def test_an_error_is_clear_if_it_is_a_sentence_of_ours(error, clear):
    assert is_clear(error) is clear


def test_files_that_stay_are_left_over_but_not_the_log_of_the_scripts_run(tmp_path):
    """The run's log as a job leaves it, until the script ends."""
    storage = tmp_path / "storage"
    storage.mkdir()
    run = ScriptRun(storage, "soak")
    plan = JobPlanned(at=0.0, job_id="job", job_name="q1", vertices=[], datasets=[], options={})
    header = LogHeader(1, "0.1.0", {}, "job", "q1", "", 0, "soak.py", [], plan, b"", b"", [])
    place = run.place(header, 0, 0.0)
    place.publishing()
    place.over(ALL, None)
    assert list(storage.rglob("*")), "there is a log"
    assert leftovers(storage, patience=0) == []
    (storage / "firesteel-job-1").mkdir()
    assert leftovers(storage, patience=0) == []
    (storage / "firesteel-job-1" / "0-1-0").touch()
    assert leftovers(storage, patience=0) == ["firesteel-job-1/0-1-0"]
    run.close(well=True)
    assert [path.name for path in storage.rglob("*") if path.is_file()] == ["0-1-0"]


@pytest.mark.parametrize(
    ("tally", "left", "broken", "code"),
    [
        (Jobs(errors=["job 3, q1, kept: clear error"]), [], [], 0),
        (Jobs(), ["firesteel-job-1/0-1-0"], [], 1),
        (Jobs(), [], ["a did not come back"], 1),
        (Jobs(wrong=["job 1"]), [], [], 1),
        (Jobs(hangs=["job 1"]), [], [], 1),
        (Jobs(unclear=["job 1"]), [], [], 1),
    ],
)
def test_the_exit_code_is_1_for_each_kind_of_thing_that_is_wrong_and_else_0(tally, left, broken, code):
    assert exit_code(tally, left, broken) == code


def test_each_mirror_counts_with_its_rule():
    made = Decision(at=1, what="speculation", rule="seed", result=[[3, 1], [4, 1]])
    refused = Decision(at=1, what="speculation", rule="seed", result=[])
    assert rules(made) == ["seed", "seed"]
    assert rules(refused) == rules(StateChange(at=1, vertex=0, state="CREATED", subtasks=[1], attempts=[1])) == []


def test_seeds_that_are_written_down_are_done_and_one_cut_short_is_not(tmp_path):
    file = tmp_path / "queries.jsonl"
    assert queries.done_seeds(file) == {}
    found = Tally(queries=100, whole=90, left=Counter({"Sample: no": 2}), wrong=["ansi: SELECT 1"])
    file.write_text(queries.line(7, 12.5, found) + queries.line(8, 9.0, Tally(queries=100))[:40])
    assert queries.done_seeds(file) == {7: found}


def test_one_value_in_five_is_an_edge():
    values = [
        value in EDGES[kind]
        for seed in range(3)
        for table in tables(seed).values()
        for kind in ("byte", "short", "int", "long", "date")
        for value in table[f"{kind}1"].to_pylist()
    ]
    assert 0.15 < sum(values) / len(values) < 0.25


def test_a_seed_is_the_same_queries_in_every_process():
    """Whatever the order of its sets."""
    made = (
        "import random; from tests.sql_random_kit import Querying; dice = random.Random(3)\n"
        "print([Querying(dice).whole(shape % 4).text for shape in range(60)])"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", made],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=ROOT,
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert told[0] == told[1] and told[0].count(b"SELECT") > 60
