"""firesteel simulate, as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from firesteel.cli.main import app
from firesteel.errors import UsageError
from firesteel.journal.explain import explain
from firesteel.journal.journal import read
from firesteel.simulation.report import PHASES

SMALL = ("simulate", "--parallelism", "40", "--nodes", "10", "--slots", "8")


def call(*arguments):
    shown = CliRunner().invoke(app, [*SMALL, *arguments], catch_exceptions=False)
    assert shown.exit_code == 0, shown.output
    return shown.output


def as_json(*arguments):
    return json.loads(call("--json", *arguments))


def test_json_has_the_phases_and_what_they_cost():
    told = as_json()
    assert set(told["phases"]) == set(PHASES)
    assert all(set(phase) == {"ms", "events"} for phase in told["phases"].values())
    named = "build", "regions", "start", "deploy", "finish of producers", "decide", "initialise", "release"
    for name in (*named, "finish of consumers", "failover of one task"):
        assert told["phases"][name]["ms"] > 0 and told["phases"][name]["events"] > 0, name
    assert told["status"] == "FINISHED" and told["makespan_s"] > 0
    assert 0 < told["memory_mib"] < 50 and 0 < told["deployment_bytes"] < told["descriptor_bytes"] < 1 << 20
    assert told["storage_requests"] == sum(told["requests"].values()) > 40
    assert told["decisions"]["parallelism"] == 1
    assert told["tasks"] == 80, "the decided step is as parallel as it may be"


@pytest.mark.parametrize("edge", ["all-to-all", "pointwise", "forward"])
@pytest.mark.parametrize("mode", ["--adaptive", "--static", "--pipelined"])
def test_every_kind_of_job_is_simulated(edge, mode):
    told = as_json("--vertices", "2", "--edge", edge, mode, "--slow-nodes", "1")
    assert told["status"] == "FINISHED" and told["tasks"] == 80
    assert told["phases"]["failover of one task"]["events"] == 1
    assert (told["storage_requests"] == 0) == (mode == "--pipelined")


def test_the_same_seed_tells_the_same_story(tmp_path):
    def story(seed, name):
        call("--seed", seed, "--fail-rate", "0.1", "--journal", str(tmp_path / name))
        return (tmp_path / name).read_bytes()

    assert story("1", "a") == story("1", "b") != story("2", "c")
    assert "failover" in explain(read(tmp_path / "a"))


def test_failures_are_decided_and_counted():
    told = as_json("--fail-rate", "0.2", "--vertices", "3", "--edge", "forward")
    assert told["status"] == "FINISHED" and told["decisions"]["failover"] > 0


def test_people_get_a_table():
    shown = call("--vertices", "1")
    assert shown.startswith("1 step of 40 subtasks, blocking all-to-all edges, adaptive; 10 nodes with 8 slots each")
    assert "memory held by the scheduler" in shown and "\nfinish of consumers " in shown


def test_options_reach_the_scheduler():
    told = as_json("-O", "max-parallelism=7")
    assert told["tasks"] == 47


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--parallelism", "0"], "--parallelism 0 must be at least 1"),
        (["--vertices", "-1"], "--vertices -1 must be at least 1"),
        (["--nodes", "0"], "--nodes 0 must be at least 1"),
        (["--edge", "diagonal"], "Give one of all-to-all, pointwise, forward|--edge diagonal is no kind of edge"),
        (["--slow-nodes", "11"], "between 0 and the number of nodes, 10"),
        (["--fail-rate", "0.9"], "between 0 and 0.5"),
        (["--seed", "-1"], "--seed -1 must be at least 0"),
        (["--pipelined", "--adaptive"], "exclude each other"),
        (
            ["--pipelined", "--nodes", "2"],
            "has 80 tasks, which must run at the same time, and the cluster has 16 slots",
        ),
        (["-O", "no-such-option=1"], "There is no option 'no-such-option'"),
        (["--journal", "/no/such/folder/x"], "cannot be written"),
        (["--journal", "/dev/full"], "cannot be written to ./dev/full.: No space left"),
        (["-O", "restart-strategy.type=none", "--fail-rate", "0.5"], "The simulated job failed"),
    ],
)
def test_wrong_use_is_a_sentence(arguments, complaint):
    """``main`` turns it into one line and exit code 2: see test_cli_main."""
    with pytest.raises(UsageError, match=complaint):
        CliRunner().invoke(app, [*SMALL, *arguments], catch_exceptions=False)


@pytest.mark.parametrize("arguments", [["--parallelism", "0"], ["--parallelism", "many"]])
def test_wrong_use_exits_with_2(arguments, tmp_path):
    command = [sys.executable, "-m", "firesteel.cli", "simulate", *arguments]
    shown = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert shown.returncode == 2 and "--parallelism" in shown.stderr and "Traceback" not in shown.stderr
