"""Names of nodes: what workers say of their place, what the status store says, and what the scheduler hears."""

from __future__ import annotations

import uuid

import pytest

from driver_loop import Status, deploy, ints
from firesteel.scheduler.kernel.events import ExecutionsDeploying, ExecutorChanged
from firesteel.spark.driver.batch import Batch
from firesteel.spark.placement.node_names import ExecutorInfo, NodeNames, learn
from firesteel.spark.placement.status_store import SparkTask
from firesteel.spark.placement.watch import Killer, Watcher
from firesteel.task.executor import place
from firesteel.task.executor.place import Place, here


def executors(**hosts):
    return {executor.strip("e"): ExecutorInfo(host, 2) for executor, host in hosts.items()}


def names(variable=None, application="", **hosts):
    made = NodeNames(application, variable)
    made.update(executors(**hosts))
    return made


class TestNames:
    def test_a_node_is_a_host(self):
        made = names(e0="a", e1="b", e2="b")
        assert [made.of("0", "a"), made.of("1", "b"), made.of("2", "b")] == ["a", "b", "b"]
        assert made.of_place(Place("2", "b").encoded) == "b"
        assert set(made.executors_of(["b"])) == {"1", "2"}

    def test_where_all_share_one_host_it_is_an_executor(self):
        made = names(e0="a", e1="a")
        assert made.of("1", "a") == made.of_place(Place("1", "a").encoded) == "a (executor 1)"
        assert made.signs(["a (executor 1)"]) == ("executor 1",)

    def test_an_executor_keeps_its_name(self):
        made = names(e0="a")
        made.update(executors(e0="a", e1="a"))
        made.update(executors(e1="a", e2="b"))
        assert [made.of("0", "a"), made.of("1", "a"), made.of("2", "b")] == ["a", "a (executor 1)", "b"]

    def test_the_status_stores_host_counts_not_the_workers(self):
        """A local master has its executor at one address and its tasks at another."""
        made = names(edriver="127.0.0.1")
        assert made.of("driver", "192.0.2.1") == made.of_place("\n192.0.2.1\n") == "127.0.0.1"

    def test_a_worker_that_does_not_know_its_executor_is_found_by_its_host(self):
        made = names(e0="a", e1="b", e2="b")
        assert [made.of_place(Place("", host).encoded) for host in ("a", "b", "c")] == ["a", "b", "c"]

    def test_a_plain_name_is_taken_as_it_is(self):
        assert names().of_place("node") == "node"

    def test_changes_are_told_once_the_lost_first(self):
        made = NodeNames()
        told = [made.update(given) for given in (executors(e0="a", e1="b"), executors(e1="b", e2="c"))]
        assert [[(c.executor, c.node, c.added) for c in changes] for changes in told] == [
            [("0", "a", True), ("1", "b", True)],
            [("0", "a", False), ("2", "c", True)],
        ]
        assert made.update(executors(e1="b", e2="c")) == []


class TestVariable:
    def test_executors_are_named_by_what_it_says_there(self):
        application = uuid.uuid4().hex
        learn(application, "NODE", [Place("0", "pod-0", "m1"), Place("1", "pod-1", "m1")])
        made = names("NODE", application, e0="pod-0", e1="pod-1", e2="pod-2")
        assert [made.of("0", "pod-0"), made.of("1", "pod-1"), made.of("2", "pod-2")] == ["m1", "m1", "pod-2"]
        assert made.signs(["m1"]) == ("executor 0", "executor 1", "label m1")

    def test_one_that_came_later_is_told_again_by_its_name(self):
        application = uuid.uuid4().hex
        made = NodeNames(application, "NODE")
        (before,) = made.update(executors(e7="pod-7"))
        assert made.of_place(Place("7", "pod-7", "m3").encoded) == "m3"
        (after,) = made.update(executors(e7="pod-7"))
        assert (before.node, after.node, after.added) == ("pod-7", "m3", True)
        assert NodeNames(application, "NODE").of("7", "pod-7") == "m3", "jobs to come know it"

    def test_without_the_option_nobody_listens_to_it(self):
        made = names(e0="pod-0", e1="pod-1")
        assert made.of_place(Place("0", "pod-0", "m1").encoded) == "pod-0"
        assert made.signs(["pod-0"]) == ("executor 0",)


@pytest.mark.parametrize("text", ["3\nh\nlabel", "\nh\n"])
def test_a_place_travels_as_text(text):
    assert Place.decode(text).encoded == text


def test_a_worker_reads_its_executors_command_line(monkeypatch):
    lines = [["python", "-m", "pyspark.daemon"], ["java", "--executor-id", "4", "--hostname", "h4", "--cores", "1"]]
    monkeypatch.setattr(place, "_ancestors", lambda: iter(lines))
    monkeypatch.setenv("MACHINE", "m4")
    assert here.__wrapped__("MACHINE") == Place("4", "h4", "m4")
    assert here.__wrapped__() == Place("4", "h4", "")


def test_without_one_it_asks_its_environment(monkeypatch):
    monkeypatch.setattr(place, "_ancestors", lambda: iter([["python"]]))
    monkeypatch.setenv("SPARK_LOCAL_IP", "h5")
    monkeypatch.delenv("SPARK_EXECUTOR_ID", raising=False)
    monkeypatch.setenv("SPARK_LOG_URL_STDERR", "http://h5:1/logPage/?appId=app&executorId=5&logType=stderr")
    assert here.__wrapped__() == Place("5", "h5")


def test_the_processes_above_this_one_are_read():
    if not place.Path("/proc/self/cmdline").exists():
        pytest.skip("no /proc here")
    assert next(place._ancestors())[0] == place.Path(f"/proc/{place.os.getppid()}/cmdline").read_text().split("\0")[0]


class TestWatcher:
    def watch(self, status, nodes=None):
        told = []
        return Watcher(
            status,
            nodes or NodeNames(),
            list,
            told.append,
            killer=Killer(status.kill, told.append),
            of_wall=lambda at: at - 1000.0,
        ), told

    def test_executors_are_listed_again_only_when_others_are_there(self):
        status = Status()
        status.hosts = {"0": "a", "1": "a"}
        watcher, told = self.watch(status)
        for hosts in ({"0": "a", "1": "a"}, {"0": "a", "1": "a"}, {"1": "a"}):
            status.hosts = hosts
            watcher.look()
        assert [(e.executor, e.node, e.added) for e in told if isinstance(e, ExecutorChanged)] == [
            ("0", "a (executor 0)", True),
            ("1", "a (executor 1)", True),
            ("0", "a (executor 0)", False),
        ]

    def test_one_that_is_just_coming_is_told_when_its_host_is_known(self):
        status = Status()
        watcher, told = self.watch(status)
        for host in ("", "a"):
            status.hosts = {"0": host}
            watcher.look()
        assert [(e.executor, e.node) for e in told] == [("0", "a")]

    def test_each_launch_is_told_once_with_its_own_time_and_node(self):
        status = Status(SparkTask(7, 0, 1005.0, "0", "a"), SparkTask(8, 1, 1009.0, "1", "b"))
        watcher, told = self.watch(status, names(e0="a", e1="b"))
        batch = Batch.of(0, [deploy(5, 6, 9)], "job", "words")
        watcher.look_at(batch)
        watcher.look_at(batch)
        assert status.listings == 1, "nothing has moved"
        status.tasks[0] = SparkTask(9, 2, 1011.0, "0", "a")
        status.tasks.append(SparkTask(10, 0, 1012.0, "0", "a", again=True))
        watcher.look_at(batch)
        launches = [
            list(zip(e.subtasks.tolist(), e.times.tolist(), e.nodes, strict=True))
            for e in told
            if isinstance(e, ExecutionsDeploying)
        ]
        assert launches == [[(5, 5.0, "a"), (6, 9.0, "b")], [(9, 11.0, "a")]]
        assert ints(0).tolist() == told[-1].attempts.tolist()


def test_spark_tells_of_a_task_in_json():
    task = {
        "taskId": 68,
        "index": 4,
        "attempt": 1,
        "partitionId": 6,
        "launchTime": "2026-11-21T06:58:42.255GMT",
        "executorId": "1",
        "host": "h",
    }
    assert SparkTask.of(task) == SparkTask(68, 6, 1795244322.255, "1", "h", again=True, index=4)
