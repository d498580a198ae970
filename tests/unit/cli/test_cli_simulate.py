"""firesteel simulate, as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from firesteel.cli.main import app
from firesteel.errors import UsageError
from firesteel.journal.file import read
from firesteel.options import MAX_PARALLELISM
from firesteel.report.explain import explain
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


HEAVY = (
    "--group", "light", "--group", "heavy",
    "-O", "slot-sharing-group.heavy.cpu-cores=2", "-O", "slot-sharing-group.heavy.task-heap-memory=3g",
)  # fmt: skip


@pytest.mark.parametrize("profiles", ["task", "executor", "none"])
def test_groups_with_resources_are_simulated_and_what_they_held_is_told(profiles):
    told = as_json(*HEAVY, "--memory", "8 GiB", "--profiles", profiles)
    assert told["status"] == "FINISHED" and told["inputs"]["worker"] == "8 cores, 8 GiB"
    light, heavy = told["slots"]["light"], told["slots"]["heavy"]
    assert light["needs"] == "of any size" and heavy["needs"] == "2 cores, 3 GiB heap"
    # Two of the heavy ones fit into the memory of each of ten nodes; idle executors of the light ones take some of it.
    assert light["most"] == 40 and heavy["most"] == (10 if profiles == "executor" else 20)
    assert heavy["gib_seconds"] == pytest.approx(1.5 * heavy["core_seconds"], rel=0.01)
    people = call(*HEAVY, "--memory", "8 GiB", "--external", "gpu=2", "--profiles", profiles)
    assert "10 nodes with 8 cores, 8 GiB, 2 gpu each" in people
    assert f"at most {heavy['most']} held at once" in people


def test_a_group_that_fits_no_node_fails_the_simulated_job():
    shown = CliRunner().invoke(app, [*SMALL, *HEAVY, "--memory", "2 GiB"], catch_exceptions=False)
    assert shown.exit_code == 1 and "2 cores, 3 GiB heap" in shown.output and "8 cores, 2 GiB" in shown.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (HEAVY, "the resources of the nodes are not given"),
        (("--memory", "8 GiB"), "no slot sharing group of the job has resources"),
        ((*HEAVY, "--memory", "much"), "is not a size"),
        ((*HEAVY, "--memory", "8 GiB", "--pipelined"), "cannot be used together"),
        ((*HEAVY, "--external", "gpu=2"), "--memory does not"),
        ((*HEAVY, "--memory", "8 GiB", "--external", "gpu"), "is not an amount"),
        ((*HEAVY, "--memory", "8 GiB", "--profiles", "all"), "is not known"),
    ],
)
def test_resources_that_make_no_cluster_are_refused(arguments, told):
    with pytest.raises(UsageError, match=told):
        call(*arguments)


SPECULATION = (
    "-O", "jobmanager.adaptive-batch-scheduler.speculative.enabled=true",
    "-O", "slow-task-detector.execution-time.baseline-lower-bound=0 s",
    "-O", "slow-task-detector.check-interval=100 ms",
)  # fmt: skip


@pytest.mark.parametrize("bad", [("--slow-nodes", "1", "--slow-factor", "0.02"), ("--frozen-nodes", "1")])
def test_speculation_is_simulated_and_told(bad):
    mirrored, alone = as_json(*bad, *SPECULATION), as_json(*bad)
    told = mirrored["speculation"]
    assert told["mirrors"] >= told["effective"] > 0 and told["blocked"] > 0
    assert mirrored["makespan_s"] < 0.6 * alone["makespan_s"] and not any(alone["speculation"].values())
    line = next(line for line in call(*bad, *SPECULATION).splitlines() if line.startswith("speculation "))
    assert f"{told['effective']} of them effective" in line and "nodes blocked" in line


def test_people_get_a_table():
    shown = call("--vertices", "1")
    assert shown.startswith("1 step of 40 subtasks, adaptive; 10 nodes with 8 slots each")
    assert "\nstorage requests              0\n" in shown
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
        (["--slots", "99999999999999999999"], "must be at most 1048576"),
        (["--parallelism", "1000000", "--vertices", "100"], "more than 67,108,864 subtasks"),
        (["--edge", "diagonal"], "Give one of all-to-all, pointwise, forward|--edge diagonal is not a kind of edge"),
        (["--slow-nodes", "11"], "between 0 and the number of nodes, 10"),
        (["--slow-factor", "0"], "--slow-factor 0 must be more than 0 and at most 1"),
        (["--frozen-nodes", "10"], "--frozen-nodes 10 must be at least 0 and less than the number of nodes, 10"),
        (["--frozen-nodes", "1", "--pipelined"], "--frozen-nodes and --pipelined cannot be used together"),
        (["--fail-rate", "0.9"], "between 0 and 0.5"),
        (["--seed", "-1"], "--seed -1 must be at least 0"),
        (["--pipelined", "--adaptive"], "cannot be used together"),
        (
            ["--pipelined", "--nodes", "2"],
            "has 80 tasks, which must run at the same time, and the cluster has 16 slots",
        ),
        (["-O", "no-such-option=1"], "There is no option 'no-such-option'"),
        (["--journal", "/no/such/folder/x"], "cannot be written"),
        (["--journal", "/dev/full"], "cannot be written to ./dev/full.: No space left"),
        (["--journal", ""], "--journal '' is not a file"),
        (["--journal", "-"], "--journal '-' is not a file"),
        (["--parallelism", "many"], "--parallelism many is not a valid whole number"),
        (["--fail-rate", "few"], "--fail-rate few is not a valid number"),
        (["-O", "scheduler=Default"], "'-O jobmanager.scheduler' is not for simulate. Say --static or --adaptive"),
        (["-O", "execution.batch-shuffle-mode=ALL_EXCHANGES_PIPELINED"], "is not for simulate. Say --pipelined"),
        (
            ["--pipelined", "--fail-rate", "0.5", "--parallelism", "7"],
            "has 14 tasks and runs again when any of them fails; where 0.5 of the executions fail, less than one try in 1,000",
        ),
    ],
)
def test_wrong_use_is_a_sentence(arguments, complaint):
    """``main`` turns it into one line and exit code 2: see test_cli_main."""
    with pytest.raises(UsageError, match=complaint):
        CliRunner().invoke(app, [*SMALL, *arguments], catch_exceptions=False)


def test_all_blocking_makes_resources_go_with_pipelined():
    resources = "-O", "slot-sharing-group.default.cpu-cores=1", "-O", "slot-sharing-group.default.task-heap-memory=1g"
    pipelined = "--pipelined", "--memory", "64 GiB", *resources
    with pytest.raises(UsageError, match=r"cannot be used together .FLIP-169.*all-blocking=true"):
        CliRunner().invoke(app, [*SMALL, *pipelined], catch_exceptions=False)
    shown = call(*pipelined, "-O", "fine-grained.shuffle-mode.all-blocking=true")
    assert "static" in shown.splitlines()[0] and "pipelined" not in shown.splitlines()[0]


def ended_with(code, *arguments):
    shown = CliRunner().invoke(app, [*SMALL, *arguments], catch_exceptions=False)
    assert shown.exit_code == code, shown.output
    return shown


def test_what_hardly_ends_is_run_where_restarts_are_few_or_regions_small():
    call("--pipelined", "--fail-rate", "0.5", "--parallelism", "7", "--edge", "forward")
    unlucky = "--pipelined", "--fail-rate", "0.5", "--parallelism", "7", "-O", "restart-strategy.fixed-delay.attempts=3"
    assert "FAILED" in ended_with(1, *unlucky).output


def test_a_job_that_fails_is_told_of_all_the_same(tmp_path):
    journal = tmp_path / "failed.jsonl"
    fails = "-O", "restart-strategy.type=none", "--fail-rate", "0.5", "--journal", str(journal)
    shown = ended_with(1, *fails).output
    assert "adaptive; decided 0 of 1;" in shown and "\nFAILED after " in shown
    assert "\nIt failed: an injected error of the user's function.\n" in shown
    told = json.loads(ended_with(1, "--json", *fails).output)
    assert told["status"] == "FAILED" and "injected" in told["cause"] and told["parallelism"] == [40, -1]
    assert told["tasks"] == 40
    assert "FAILED after" in explain(read(journal))


def test_restarts_have_no_limit_and_no_number_says_otherwise(tmp_path):
    call("--fail-rate", "0.1", "--journal", str(tmp_path / "j"))
    told = explain(read(tmp_path / "j"))
    assert "restart 1 without limit, after 1 s" in told and "restart-strategy" not in told


def test_a_journal_names_the_job_and_its_steps(tmp_path):
    call("--seed", "4", "--journal", str(tmp_path / "j"))
    told = explain(read(tmp_path / "j"))
    assert told.startswith("2 x 40, all-to-all (simulated, seed 4)")
    assert "\n[1] step 1: 40 subtasks, after [0]\n" in told and "row" not in told


def test_only_journals_of_simulations_are_overwritten(tmp_path):
    call("--journal", str(tmp_path / "its"))
    real = (tmp_path / "its").read_bytes().replace(b'"simulated"', b'"0123456789ab"')
    for name, content in (
        ("text", "dear diary\n"),
        ("record", '{"type":"Poem","at":1}\n'),
        ("binary", b"\xff\x00"),
        ("real", real),
    ):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        before = path.read_bytes()
        with pytest.raises(UsageError, match="is there already and is not the journal of a simulation: it"):
            call("--journal", str(path))
        assert path.read_bytes() == before
    journal = tmp_path / "journal"
    journal.touch()
    call("--journal", str(journal))
    first = journal.read_bytes()
    call("--journal", str(journal))
    assert journal.read_bytes() == first
    with pytest.raises(UsageError):
        call("--journal", str(journal), "--pipelined", "--nodes", "1")
    assert journal.read_bytes() == first, "what is refused costs no journal"


def test_what_was_asked_and_what_was_decided_are_told_apart():
    assert call("-O", "max-parallelism=7").startswith("2 steps of at most 40 subtasks, blocking all-to-all edges, ada")
    assert "adaptive; decided 7;" in call("-O", "max-parallelism=7")
    assert "adaptive; decided 40 for each of 2;" in call("--vertices", "3")
    assert "decided" not in call("--static").splitlines()[0]


def test_json_says_what_was_asked_for():
    told = as_json("--seed", "3", "-O", "max-parallelism=7")
    asked = {"vertices": 2, "parallelism": 40, "nodes": 10, "slots": 8, "seed": 3, "edge": "all-to-all"}
    assert asked.items() <= told["inputs"].items() and told["inputs"]["options"] == {MAX_PARALLELISM.key: "7"}
    assert told["parallelism"] == [40, 7] and told["cause"] == ""
    assert told["makespan_s"] == round(told["makespan_s"], 3)


@pytest.mark.parametrize(("edge", "note"), [("all-to-all", True), ("pointwise", True), ("forward", False)])
def test_what_spark_cannot_run_is_said(edge, note):
    assert ("Spark cannot run this job" in call("--pipelined", "--edge", edge)) == note
    assert "Spark" not in call("--static", "--edge", edge)


def test_ctrl_c_is_told(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("firesteel.cli.simulate.costs_of", interrupted)
    assert ended_with(130).stderr == "Cancelled.\n"


def test_a_closed_output_is_a_sentence(tmp_path):
    command = ["sh", "-c", f"exec '{sys.executable}' -m firesteel simulate --parallelism 2 >&-"]
    shown = subprocess.run(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False)
    assert (shown.returncode, shown.stderr) == (1, "firesteel: There is no output to print the report to.\n")


@pytest.mark.parametrize(
    "arguments", [["--parallelism", "0"], pytest.param(["--parallelism", "many"], marks=pytest.mark.full)]
)
def test_wrong_use_exits_with_2(arguments, tmp_path):
    command = [sys.executable, "-m", "firesteel", "simulate", *arguments]
    shown = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert shown.returncode == 2 and "--parallelism" in shown.stderr and "Traceback" not in shown.stderr
