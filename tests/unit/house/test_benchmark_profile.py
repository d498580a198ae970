"""The profile of a job: samples weigh what threads have used, stacks and threads belong to parts, and all adds up to the process tree."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from xml.dom import minidom

import pytest
from benchmarks.profile import accounts, flame, parts
from benchmarks.profile.accounts import Account, Sample
from benchmarks.profile.main import Profile, table
from benchmarks.profile.processes import Process, Watch
from benchmarks.profile.sampler import UNINTERRUPTED_SECONDS, Sampler, thread_clock

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "src" / "firesteel"
RULES = list(dict.fromkeys((*parts.WORKER, *parts.DRIVER_RULES)))

BURNING = """
import json, sys, threading, time
from benchmarks.profile.sampler import start_in_driver, start_in_worker

def plain(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(100))

def in_c(seconds):
    end = time.thread_time() + seconds
    block = bytes(1 << 20)
    while time.thread_time() < end:
        zlib.crc32(block)  # lets the GIL go

import zlib
"""
WORKER = "start_in_worker(sys.argv[1]); plain(0.3); time.sleep(0.3); in_c(0.15); print(json.dumps(time.process_time()))"
DRIVER = """
start_in_driver(sys.argv[1])
thread = threading.Thread(target=plain, args=(0.3,))
thread.start()
thread.join()
in_c(0.15)
print(json.dumps(time.process_time()))
"""


@pytest.fixture(scope="module", params=["worker", "driver"])
def burnt(request, tmp_path_factory):
    """Seconds that a process says it has used, and its samples."""
    folder = tmp_path_factory.mktemp(request.param)
    code = BURNING + (WORKER if request.param == "worker" else DRIVER)
    ran = subprocess.run([sys.executable, "-c", code, folder], cwd=ROOT, check=True, capture_output=True, text=True)
    ((kind, samples),) = accounts.read(folder).values()
    assert kind == request.param
    return json.loads(ran.stdout), samples


def test_samples_add_up_to_what_the_process_has_used(burnt):
    used, samples = burnt
    total = sum(sample.used for sample in samples) / 1e9
    assert (
        0.8 * used < total < 1.2 * used
    )  # the samples end a little before, or behind, where a busy machine delays either


@pytest.mark.parametrize("burnt", ["worker"], indirect=True)
def test_samples_are_of_the_function_that_computes_and_waiting_weighs_nothing(burnt):
    _, samples = burnt
    seconds: Counter[str] = Counter()
    for sample in samples:
        seconds[sample.stack[-1][1]] += sample.used / 1e9
    assert seconds["plain"] == pytest.approx(0.3, abs=0.12)
    assert seconds["in_c"] == pytest.approx(0.15, abs=0.1)


def test_a_thread_weighs_what_it_has_used_and_one_that_waits_nothing(tmp_path):
    """The samples of a driver, taken by hand: when a busy machine would take them decides nothing."""
    over, sampler = threading.Event(), Sampler(tmp_path, "driver")

    def computes():
        while not over.is_set():
            sum(range(100))

    threads = [threading.Thread(target=over.wait, name="waits"), threading.Thread(target=computes, name="computes")]
    for thread in threads:
        thread.start()
    used = partial(time.clock_gettime_ns, thread_clock(threads[1].native_id))
    for _ in range(2):
        enough = used() + 20_000_000
        while used() < enough:
            time.sleep(0.001)
        least, interval = used(), sys.getswitchinterval()
        sys.setswitchinterval(UNINTERRUPTED_SECONDS)
        sampler.write(sampler.lines())
        sys.setswitchinterval(interval)
        most = used()
    over.set()
    for thread in threads:
        thread.join()
    ((_, samples),) = accounts.read(tmp_path).values()
    seen = {name: sum(s.used for s in samples if s.stack[0][1] == name) for name in ("waits", "computes")}
    assert least <= seen["computes"] <= most
    assert seen["waits"] < 5_000_000 < seen["computes"]


def test_samples_are_not_taken_of_taking_samples(burnt):
    _, samples = burnt
    assert not [sample for sample in samples if any(module.endswith(".sampler") for module, _, _ in sample.stack)]


def test_sampling_costs_little_and_is_told(burnt):
    used, samples = burnt
    (own,) = {s.stack for s in samples if parts.part_of_stack(s.stack, parts.WORKER, "") == parts.SAMPLING}
    assert 0 < sum(s.used for s in samples if s.stack == own) / 1e9 < 0.15 * used  # one percent, but on a busy machine


def _functions(path: Path) -> set[str]:
    """Names of functions and methods, as ``co_qualname`` has them but for what is local to one."""

    def within(body, prefix):
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield prefix + node.name
                if isinstance(node, ast.ClassDef):
                    yield from within(node.body, f"{prefix}{node.name}.")

    return {*within(ast.parse(path.read_text()).body, "")}


OURS = [rule for rule in RULES if (SOURCES / rule.where.split(":")[0].split(".")[0]).is_dir()]


def test_most_rules_are_about_firesteel():
    assert len(OURS) > len(RULES) - 12


@pytest.mark.parametrize("rule", OURS, ids=lambda rule: f"{rule.where} {' '.join(rule.line)}")
def test_a_rule_names_what_there_is(rule):
    """So that it does not stay behind when code moves."""
    module, _, function = rule.where.partition(":")
    room = SOURCES / module.split(".")[0]
    paths = {
        path
        for path in room.rglob("*.py")
        if fnmatchcase(".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__"), module)
    }
    assert paths
    if function != "*":
        assert any(fnmatchcase(name, function) for path in paths for name in _functions(path))
    if rule.line:
        text = "".join(path.read_text() for path in paths)
        assert any(word in text for word in rule.line)


def _line(module: str, words: str) -> int:
    lines = (SOURCES / f"{module.replace('.', '/')}.py").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if words in line)


def _stack(*frames: str) -> tuple[parts.Frame, ...]:
    return tuple((module, function, 0) for module, _, function in (frame.partition(":") for frame in frames))


TASK = "pyspark.daemon:worker", "firesteel.task.executor.spark_task:_Task.run", "firesteel.task.runner:_PartRun.drain"
WRITER = *TASK, "firesteel.results.writer:ResultWriter.write", "firesteel.results.writer:ResultWriter._flush"


@pytest.mark.parametrize(
    ("frames", "part"),
    [
        (TASK, parts.BETWEEN),
        (TASK[:2], parts.TASK),
        (TASK[:1], parts.SPARK_TASK),
        (WRITER, parts.ORDERING),
        ((*WRITER, "firesteel.results.messages:put_in_order", "pyarrow.compute:take"), parts.GATHERING),
        ((*WRITER, "firesteel.results.messages:MessageStream.add"), parts.ENCODING),
        ((*WRITER, "firesteel.results.messages:MessageStream.add", "firesteel.results.layout:Packer.pack"), parts.COMPRESSING),
        ((*WRITER, "firesteel.results.layout:Packer.pack", "firesteel.results.layout:checksum"), parts.CHECKSUMS),
        ((*WRITER, "firesteel.results.messages:MessageStream.drain", "firesteel.results.storage.store:_LocalOutput.write"), parts.WRITING),
        ((*WRITER[:4], "firesteel.results.plain:add_row_bytes"), parts.SIZES),
        ((*WRITER[:4], "firesteel.results.writer:ResultWriter._subpartition_ids"), parts.HASHING),
        ((*TASK, "firesteel.connectors.formats.parquet:ParquetSource._read_row_group"), parts.READING),
        ((*TASK, "firesteel.task.functions.batch_functions:_on_batches", "benchmarks.kit.cases:revenue"), parts.USER),
        ((*TASK, "benchmarks.kit.cases:revenue", "firesteel.connectors.formats.parquet:ParquetSource.read"), parts.READING),
        ((*TASK, "benchmarks.kit.cases:_ChecksumWriter.write"), parts.SINKS),
        ((*TASK, "firesteel.results.reader:GateReader._begin", "firesteel.results.storage.objects:StoredObject.index",
          "firesteel.results.storage.store:_LocalInput.read_at"), parts.REQUESTS),
        ((*TASK, "firesteel.results.reader:GateReader._begin", "firesteel.results.storage.objects:StoredObject.read",
          "firesteel.results.storage.store:_LocalInput.read_at"), parts.READ_BACK),
        ((*TASK, "firesteel.results.reader:GateReader._decoded", "firesteel.results.reader:decode_message"), parts.DECODING),
        ((*TASK, "firesteel.task.operators.join:<module>", "importlib._bootstrap:_load"), parts.IMPORTS),
        ((*TASK[:2], "firesteel.task.executor.spark_task:_program", "pyspark.cloudpickle.cloudpickle:_builtin_type"), parts.TASK),
        (("runpy:_run",), "nobody's"),
    ],
)  # fmt: skip
def test_the_part_of_a_workers_stack(frames, part):
    assert parts.part_of_stack(_stack(*frames), parts.WORKER, "nobody's") == part


@pytest.mark.parametrize(
    ("frames", "part"),
    [
        (("firesteel.spark.driver.loop:JobDriver.run", "firesteel.scheduler.scheduler:Scheduler.handle"), parts.SCHEDULER),
        (("firesteel.scheduler.scheduler:Scheduler.handle", "firesteel.journal.writer:X.write"), parts.JOURNAL),
        (("firesteel.spark.driver.batch:BatchRunner._run", "py4j.java_gateway:JavaMember.__call__"), parts.CALLS),
        (("pyspark.accumulators:_AccumulatorServer", "firesteel.spark.driver.channel:MessageParam.addInPlace"), parts.MESSAGES),
        (("firesteel.spark.driver.loop:JobDriver.run",), parts.LOOP),
    ],
)  # fmt: skip
def test_the_part_of_a_drivers_stack(frames, part):
    assert parts.part_of_stack(_stack(*frames), parts.DRIVER_RULES, "nobody's") == part


@pytest.mark.parametrize(
    ("module", "function", "words", "part"),
    [
        ("results.layout", "_block_check", "zlib.crc32(", parts.CHECKSUMS),
        ("results.layout", "_encode_list", "parts.append", parts.WRITING),
        ("task.executor.spark_task", "settle", "gc.collect()", parts.GARBAGE),
        ("task.executor.spark_task", "settle", "_settled = now", parts.TASK),
    ],
)
def test_the_sampled_line_tells_what_a_function_does(module, function, words, part):
    frame = f"firesteel.{module}", function, _line(module, words)
    assert parts.part_of_stack([frame], parts.WORKER, "nobody's") == part


def test_every_part_has_a_row():
    made = {rule.part for rule in RULES} | {parts.part_of_thread(name) for name in ("GC Thread#0", "Thread-3", "x")}
    assert made - {parts.CALLERS} <= set(parts.ROWS)
    assert len(set(parts.ROWS)) == len(parts.ROWS)


def _watch(begun: int, ended: int, processes: dict[int, Process]) -> Watch:
    watch = Watch(0)
    watch.begun, watch.ended, watch.processes = begun, ended, processes
    return watch


def _account() -> Account:
    threads = {7: ("GC Thread#0", 0, 20), 8: ("Executor task l", 5, 35), 9: ("main", 4, 4)}
    before = _watch(
        0, 100, {1: Process("python", 0, 55), 2: Process("java", 10, 70, threads), 3: Process("python3", 5, 10)}
    )
    after = _watch(200, 300, {1: Process("python", 60, 100)})
    inner = _stack("pyspark.daemon:worker", "firesteel.results.messages:MessageStream.add")
    samples = [Sample(100, 50, inner), Sample(150, 1000, inner), Sample(300, 40, inner[:1])]
    return accounts.account([before, after], {1: ("worker", samples)})


def test_an_account_adds_up_what_was_used_while_watched():
    made = _account()
    assert made.whole == 55 + 60 + 5 + 40
    assert made.parts == {
        parts.ENCODING: 50,
        parts.SPARK_TASK: 40,
        parts.JVM_GARBAGE: 20,
        parts.JVM_TASKS: 30,
        parts.JVM_ENDED: 10,
        parts.DAEMON: 5,
    }
    assert made.told == 155 == made.stacks.total()


def test_a_thread_found_waiting_has_worked_where_it_was_found_at_work():
    thread = "thread", "job", 0
    waiting = (
        "firesteel.spark.driver.loop",
        "JobDriver._next_items",
        _line("spark.driver.loop", "self._queue.get(timeout="),
    )
    working = _stack("firesteel.scheduler.scheduler:Scheduler.handle", "firesteel.journal.file:X.write")
    idle = _stack("thread:other")[0], waiting
    samples = [
        Sample(1, 60, (thread, waiting)),
        Sample(2, 10, (thread, working[0])),
        Sample(3, 30, (thread, working[1])),
        Sample(4, 7, idle),
    ]
    assert accounts.active(samples) == [
        Sample(2, 25, (thread, working[0])),
        Sample(3, 75, (thread, working[1])),
        Sample(4, 7, idle),
    ]


def test_the_table_adds_up():
    made = _account()
    lines = table("job", Profile(made, tasks=2, bytes=10 << 20, seconds=1.5)).splitlines()
    cells = {cells[0]: cells for cells in ([c.strip() for c in line.strip("|").split("|")] for line in lines[6:])}
    shares = [float(row[2].rstrip("%")) for name, row in cells.items() if not name.startswith("**")]
    assert cells["**process tree**"][2] == "100.0%"
    assert sum(shares) == pytest.approx(float(cells["**told in all**"][2].rstrip("%")), abs=0.5)


def test_a_watch_sees_a_process_that_begins_and_ends_within():
    burn = "import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass"
    own = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])\ninput()"],
        stdin=subprocess.PIPE,
    )
    with Watch(own.pid) as watch:
        while len(watch.processes) < 2 and own.poll() is None:
            time.sleep(0.05)
        child = next(pid for pid in watch.processes if pid != own.pid)
        while Path(f"/proc/{child}").exists():
            time.sleep(0.05)
    own.communicate(b"\n")
    assert 0.1e9 < watch.processes[child].used < 0.8e9
    assert watch.used >= watch.processes[child].used


def test_a_flame_graph_is_as_wide_as_what_was_used():
    stacks = {("worker", "a", "b <c>"): 3_000_000, ("worker", "a"): 1_000_000, ("driver",): 4_000_000, ("none",): 100}
    picture = minidom.parseString(flame.svg(stacks, "a & b"))
    titles = {t.firstChild.data: t.parentNode for t in picture.getElementsByTagName("title")}
    widths = {
        title.partition(":")[0]: float(group.getElementsByTagName("rect")[0].getAttribute("width"))
        for title, group in titles.items()
    }
    assert widths == pytest.approx({"worker": 800, "a": 800, "b <c>": 600, "driver": 800}, abs=0.2)
    assert flame.collapsed(stacks).splitlines() == ["driver 4000", "worker;a 1000", "worker;a;b <c> 3000"]
