"""Benchmark 9: one of three nodes runs at a tenth of its speed; and what looking for slow nodes costs when there is none.

A real standalone cluster on this machine, each contender an application of its own with one slot on each node. The
nodes' processes are stopped nine tenths of the time, for all contenders alike, after uncounted runs at full speed.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.kit import ticks
from benchmarks.kit.data import BASE
from benchmarks.kit.harness import Contender, alternate, compete, cpu_seconds, table

TICKS = int(os.environ.get("FIRESTEEL_BENCH_TICKS", "2000"))
"""Of a subtask: about as many milliseconds, and a little for each."""
WARM_TICKS = 50
SUBTASKS = {"slow node": 30, "one wave": 3}
SPECULATION = "jobmanager.adaptive-batch-scheduler.speculative.enabled"
DETECTOR = {
    "slow-task-detector.check-interval": "200 ms",
    "slow-task-detector.execution-time.baseline-lower-bound": "1 s",
    "slow-task-detector.execution-time.baseline-ratio": "0.75",
    "slow-task-detector.execution-time.baseline-multiplier": "1.5",
}
UNREACHABLE = {"slow-task-detector.execution-time.baseline-ratio": "0.9"}
"""Of three subtasks all three would have to be finished: only the fallback rule can speak."""
SAME_THRESHOLDS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.speculation.quantile": "0.75",
    "spark.speculation.multiplier": "1.5",
}
JOURNALS = BASE / "speculation"
PAIRED_JOBS = {"many short": (300, 20), "few long": (3, 8000)}
"""Subtasks and ticks of the jobs whose driver's CPU time is compared."""


# --- contenders: each in a process of its own ----------------------------------------------------------------------


def firesteel(master: str, slots: int, subtasks: int, options: dict[str, str], journal: str) -> Callable[[], Any]:
    env = ticks.environment(master, slots, {**options, "firesteel.journal.directory": journal})
    source = _warm_first(lambda count: _run(env, [count] * subtasks))
    return lambda: ticks.answer(source())


def pyspark(master: str, slots: int, subtasks: int, settings: dict[str, str]) -> Callable[[], Any]:
    from pyspark.sql import functions as F

    spark = ticks.spark_session(master, slots, settings)

    def run(count: int) -> list[int]:
        frame = spark.range(0, subtasks, 1, subtasks).withColumn("ticks", F.lit(count))
        return [row[0] for row in frame.mapInArrow(ticks.per_row, "v bigint").collect()]

    runs = _warm_first(run)
    return lambda: ticks.answer(runs())


def overhead(master: str, slots: int, subtasks: int, count: int) -> Callable[[], Any]:
    """One driver runs the same job with speculation on and off, in turn: CPU seconds of its Python and its JVM."""
    journal = str(JOURNALS / "overhead")
    base = {"firesteel.journal.directory": journal, **DETECTOR}
    env = ticks.environment(master, slots, {**base, SPECULATION: "false"})
    with_it = type(env)(spark=env.spark, options={**ticks.QUIET, **base, SPECULATION: "true"})
    turn = 0

    def one(environment: Any) -> dict[str, float]:
        jobs, cpu, began = _spark_jobs(env), cpu_seconds(), time.perf_counter()
        _run(environment, [count] * subtasks)
        wall = time.perf_counter() - began
        return {"cpu": cpu_seconds() - cpu, "jobs": _spark_jobs(env) - jobs, "wall": wall}

    def pair() -> dict[str, dict[str, float]]:
        nonlocal turn
        turn += 1
        order = [("on", with_it), ("off", env)]  # who comes second finds warmer caches: both do in turn
        return {name: one(environment) for name, environment in (order if turn % 2 else order[::-1])}

    return pair


def skewed(master: str, slots: int, rule: str) -> Callable[[], Any]:
    """A source and a step behind an exchange; in both one subtask has eight times the bytes, and takes as long."""
    journal = str(JOURNALS / f"skewed-{rule}")
    options = {**DETECTOR, SPECULATION: "true", "firesteel.slow-task-detector.rule": rule}
    env = ticks.environment(master, slots, {**options, "firesteel.journal.directory": journal})
    heavy, light, groups = TICKS * 4, TICKS // 2, 12
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])

    def spread(batches: Any) -> Any:
        for batch in batches:
            for subtask in batch.column(0).to_pylist():
                keys = [k for k in range(groups) for _ in range(800 if k == 0 else 100)]
                yield pa.RecordBatch.from_arrays([pa.array(keys), pa.array([subtask] * len(keys))], schema=schema)

    def group(rows: pa.Table) -> pa.Table:
        ticks.tick(rows.num_rows * light // (100 * groups))
        return rows.slice(0, 1)

    def run() -> list[float]:
        source = env.from_source(ticks.Ticks([heavy, *[light] * (groups - 1)]))
        applied = source.map_in_arrow(spread, schema).key_by("k").apply_in_arrow(group, schema)
        before = _spark_jobs(env)
        found = applied.set_parallelism(groups).to_arrow()
        return [float(found.num_rows), float(_spark_jobs(env) - before)]

    return run


def _run(env: Any, counts: list[int]) -> list[int]:
    return env.from_source(ticks.Ticks(counts)).to_arrow().column("v").to_pylist()


def _warm_first(run: Callable[[int], list[int]]) -> Callable[[], list[int]]:
    """The first two runs, which are not counted, are short."""
    counts = iter((WARM_TICKS, WARM_TICKS))
    return lambda: run(next(counts, TICKS))


def _spark_jobs(env: Any) -> int:
    """Jobs that this Spark application has started so far."""
    return int(env.spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


# --- what they are asked, and what is printed ----------------------------------------------------------------------


def main(runs: int, only: str) -> None:
    """``only``: "slow node", "one wave", "nobody slow", or "skewed"."""
    from tools.standalone import HOSTS, StandaloneCluster

    cases = {"slow node": _slow_node, "one wave": _one_wave, "nobody slow": _nobody_slow, "skewed": _skewed}
    if only and only not in cases:
        raise SystemExit(f"There is no case '{only}' here; there are {', '.join(cases)}.")
    shutil.rmtree(JOURNALS, ignore_errors=True)
    with (
        StandaloneCluster(hosts=HOSTS, cores=8, memory="8g") as three,
        StandaloneCluster(hosts=HOSTS[:2], cores=2, memory="2g") as two,
    ):
        for name in [only] if only else cases:
            cases[name](three, two, runs)


def _slow_node(three: Any, two: Any, runs: int) -> None:
    entered = [
        _ours("Firesteel on the two healthy nodes alone", two.url, 2, "slow node", {}),
        _ours("Firesteel, speculation", three.url, 3, "slow node", {SPECULATION: "true", **DETECTOR}),
        _ours("Firesteel, no speculation", three.url, 3, "slow node", {}),
        _theirs("PySpark, spark.speculation=true", three.url, "slow node", {"spark.speculation": "true"}),
        _theirs("PySpark, the same thresholds", three.url, "slow node", SAME_THRESHOLDS),
    ]
    _race(three, entered, runs)
    print(table(f"speculation: 30 subtasks of {TICKS} ticks, one of three nodes slow", entered, entered[0]))
    _print_rules(entered[1:2])


def _one_wave(three: Any, two: Any, runs: int) -> None:
    further = {SPECULATION: "true", **DETECTOR, **UNREACHABLE}
    absolute = {
        **further,
        "firesteel.slow-task-detector.expected": "false",
        "firesteel.slow-task-detector.absolute-time": f"{3 * TICKS} ms",
    }
    unfinished = {**SAME_THRESHOLDS, "spark.speculation.quantile": "0.9"}
    entered = [
        _ours("Firesteel on the two healthy nodes alone", two.url, 2, "one wave", {}),
        _ours("Firesteel, expectation", three.url, 3, "one wave", further),
        _ours("Firesteel, absolute time", three.url, 3, "one wave", absolute),
        _ours("Firesteel, ratio that can be reached", three.url, 3, "one wave", {SPECULATION: "true", **DETECTOR}),
        _ours("Firesteel, no speculation", three.url, 3, "one wave", {}),
        _theirs("PySpark, the same thresholds", three.url, "one wave", unfinished),
    ]
    _race(three, entered, runs)
    print(table(f"speculation: one wave of 3 subtasks of {TICKS} ticks, one node slow", entered, entered[0]))
    _print_rules(entered[1:4])


def _nobody_slow(three: Any, two: Any, runs: int) -> None:
    print("### speculation: nobody slow, the driver's CPU time with it and without, paired\n")
    print("| job | pairs | CPU s a job, on | off | sum of on / sum of off | median of pairs | Spark jobs, on | off |")
    print("|---|---|---|---|---|---|---|---|")
    for name, (subtasks, count) in PAIRED_JOBS.items():
        arguments = {"master": three.url, "slots": 3, "subtasks": subtasks, "count": count}
        contender = Contender(name, f"{__name__}:overhead", arguments)
        pairs = alternate([contender], runs=4 * runs, warmup=3)[name]
        print(_overhead_row(f"{name}: {subtasks} subtasks of {count} ticks", pairs), flush=True)
    print()
    _refuse_mirrors(JOURNALS / "overhead")


def _overhead_row(name: str, pairs: list[dict[str, dict[str, float]]]) -> str:
    on, off = ([pair[which]["cpu"] for pair in pairs] for which in ("on", "off"))
    jobs = [sum(pair[which]["jobs"] for pair in pairs) / len(pairs) for which in ("on", "off")]
    middle = statistics.median(a / b for a, b in zip(on, off, strict=True))
    means = f"{statistics.mean(on):.3f} | {statistics.mean(off):.3f}"
    return (
        f"| {name} | {len(pairs)} | {means} | {sum(on) / sum(off):.3f} | {middle:.3f} | {jobs[0]:.2f} | {jobs[1]:.2f} |"
    )


def _skewed(three: Any, two: Any, runs: int) -> None:
    entered = [
        Contender(f"rule {rule}", f"{__name__}:skewed", {"master": three.url, "slots": 3, "rule": rule})
        for rule in ("input-weighted", "seed")
    ]
    alternate(entered, runs=runs, warmup=0)
    print("### speculation: skewed data, nobody slow\n\n| rule | Spark jobs | mirrors | jobs |\n|---|---|---|---|")
    for contender, rule in zip(entered, ("input-weighted", "seed"), strict=True):
        folder = JOURNALS / f"skewed-{rule}"
        made = sum(len(mirrors(path)) for path in folder.glob("*.jsonl"))
        print(f"| {rule} | {contender.answer[1]:.0f} | {made} | {len(list(folder.glob('*.jsonl')))} |")
    print(flush=True)
    _refuse_mirrors(JOURNALS / "skewed-input-weighted")


def _ours(name: str, master: str, slots: int, case: str, options: dict[str, str]) -> Contender:
    journal = str(JOURNALS / f"{case} {name}")
    arguments = {"master": master, "slots": slots, "subtasks": SUBTASKS[case], "options": options, "journal": journal}
    return Contender(name, f"{__name__}:firesteel", arguments)


def _theirs(name: str, master: str, case: str, settings: dict[str, str]) -> Contender:
    arguments = {"master": master, "slots": 3, "subtasks": SUBTASKS[case], "settings": settings}
    return Contender(name, f"{__name__}:pyspark", arguments)


def _race(three: Any, entered: list[Contender], runs: int) -> None:
    held: list[Any] = []
    try:
        compete(entered, runs=runs, before_counted=lambda: held.append(three.slow(three.hosts[-1], 0.1)))
    finally:
        for one in held:
            one.end()


def _print_rules(entered: list[Contender]) -> None:
    """Which rule made the mirrors of the counted jobs, from their journals."""
    for contender in entered:
        folder = Path(contender.arguments["journal"])
        found = Counter(rule for path in folder.glob("*.jsonl") for rule in mirrors(path))
        told = ", ".join(f"{count} by {rule}" for rule, count in sorted(found.items()))
        print(f"Mirrors of {contender.name}: {told or 'none'}.")
    print(flush=True)


def _refuse_mirrors(folder: Path) -> None:
    made = sum(len(mirrors(path)) for path in folder.glob("*.jsonl"))
    if made:
        print(f"NOT AS AIMED: {made} mirrors where nobody was slow; see {folder}.\n", flush=True)


def mirrors(journal: Path) -> list[str]:
    """The rule of each mirror that this job has made."""
    from firesteel.journal.file import read

    return [rule for record in read(journal) for rule in rules(record)]


def rules(record: Any) -> list[str]:
    """Of a journal record: the rule that spoke, for each mirror that it tells of."""
    return [record.rule] * len(record.result) if getattr(record, "what", "") == "speculation" else []
