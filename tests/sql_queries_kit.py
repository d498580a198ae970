"""Random queries held to Spark: each as the steps that the takeover makes of it, run in this process or as a job.

``python -m benchmarks.soak.queries`` runs more of them.
"""

from __future__ import annotations

import logging
import math
import random
import re
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tests.sql_random_kit import Query, Querying, huge_table, tables
from tests.sql_steps_kit import Steps

from firesteel import ExecutionEnvironment, accelerate
from firesteel.api.ddl import dataframe_schema
from firesteel.errors import EngineStop, FiresteelError
from firesteel.plan.expr import Unsupported
from firesteel.run.engine import ENGINE, Running
from firesteel.run.statement import statement_of
from firesteel.sql.plans.catalyst import read_plan
from firesteel.sql.takeover import TakenOver, take_over

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.parquet.filterPushdown": "false",  # by dictionaries it loses rows of -0.0 where 0.0 is asked for
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.ui.explainMode": "simple",  # nobody looks at the texts of plans
    "spark.sql.maxPlanStringLength": "0",
}
"""Spark's, under which it answers small queries soonest: compiling one takes longer than interpreting it."""
VOLUME = "jobmanager.adaptive-batch-scheduler.data-volume-per-task"
OPTIONS = (
    {VOLUME: "1b"},
    {VOLUME: "200b", "firesteel.join.adaptive": "false"},
    {VOLUME: "200b", "firesteel.join.runtime-filter.min-probe-data-size": "0b"},
    {VOLUME: "200b", "firesteel.memory.per-task": "1 MiB"},
    {},
)
"""Of the jobs: many tasks, hashed joins, sources narrowed, little memory, and as they are."""


@dataclass
class Tally:
    queries: int = 0
    whole: int = 0
    """Taken over with nothing left to Spark."""
    failed: int = 0
    """Queries that Spark refuses. Those that it begins with are held to the takeover, too."""
    raised: int = 0
    """Queries that raise here where Spark raises."""
    in_jobs: int = 0
    """Queries that also ran as jobs."""
    statements: int = 0
    """Queries that also ran as one statement in this process."""
    rows: int = 0
    left: Counter[str] = field(default_factory=Counter)
    gave_up: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    """A query for each reason to give up."""
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        for name in ("queries", "whole", "failed", "raised", "in_jobs", "statements", "rows"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.left.update(other.left)
        self.gave_up.update(other.gave_up)
        self.examples = {**other.examples, **self.examples}
        self.wrong += other.wrong


ANY_ROWS = "other rows, where Spark's plan has lost the order of a limit"


@dataclass
class Known:
    """A query with Spark's answer, or the condition of the error that Spark raises."""

    query: Query
    mode: str
    frame: object
    theirs: pa.Table | None
    condition: str = ""


@contextmanager
def quick(spark):
    """The session under ``SETTINGS``, without the traces that Spark writes for what it refuses."""
    before = {name: spark.conf.get(name, None) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


class Kit:
    """The tables of a seed as views of the session."""

    def __init__(self, spark, directory: Path, seed: int = 0) -> None:
        self.spark, self.directory, self.jobs = spark, directory, 0
        self.options = {"firesteel.progress": False, **OPTIONS[seed % len(OPTIONS)]}
        self.env = ExecutionEnvironment(spark=spark, options=self.options)
        self.steps = Steps(directory, seed)
        for name, table in tables(seed).items():
            self._add(name, table)

    def _add(self, name: str, table: pa.Table) -> None:
        home = self.directory / name
        home.mkdir()
        for i in range(2):  # so that there are several tasks
            half = table.slice(i * len(table) // 2, len(table) // 2 + i)
            pq.write_table(half, home / f"{i}.parquet", row_group_size=5)
        self.spark.read.parquet(str(home)).createOrReplaceTempView(name)

    def held(self, queries: list[Query], mode: str, tally: Tally, as_job: bool = False) -> None:
        """Each by its steps; ``as_job``: all as results of one job besides."""
        self.spark.conf.set("spark.sql.ansi.enabled", str(mode == "ansi").lower())
        tally.queries += len(queries)
        known = [one for query in queries if (one := self._answered(query, mode, tally)) is not None]
        refused = [one for one in known if one.theirs is None]
        sure = [one for one in known if one.theirs is not None and self._by_steps(one, tally)]
        for one in refused:
            self._fails(one, tally)
        if as_job and sure:
            tally.in_jobs += len(sure)
            self._by_job(sure, tally)
        for one in refused[:1] if as_job else ():
            self._by_action(one, tally)

    def _answered(self, query: Query, mode: str, tally: Tally) -> Known | None:
        """None: Spark does not begin with it."""
        if " th " in query.text and not (self.directory / "th").exists():
            self._add("th", huge_table())
        frame = None
        try:
            frame = self.spark.sql(query.text)
            return Known(query, mode, frame, frame.toArrow())
        except Exception as error:  # what ANSI refuses
            tally.failed += 1
            found = condition(error)
            tally.left[f"Spark: {found}"] += 1
            return None if frame is None else Known(query, mode, frame, None, found)

    def _fails(self, known: Known, tally: Tally) -> None:
        """Rows where Spark raises are wrong. With any error here, Spark computes the query itself, and raises."""
        for how, compute in (("", self._rows_of_steps), ("in process, ", rows_in_process)):
            try:
                taken = take_over(read_plan(known.frame), dataframe_schema(known.frame))
                rows = compute(taken)
            except Unsupported:
                continue
            except Exception:
                tally.raised += not how
                continue
            if not self._takes_any_rows(known.frame):
                tally.wrong.append(
                    f"{how}{known.mode}: {known.query.text}\n      {len(rows)} rows, Spark raises {known.condition}"
                )

    def _rows_of_steps(self, taken: TakenOver) -> pa.Table:
        return self.steps.run(taken.step(""))

    def _by_action(self, known: Known, tally: Tally) -> None:
        """An action of an accelerated session raises what Spark raises."""
        with accelerate(self.spark, self.options):
            try:
                found = f"{len(self.spark.sql(known.query.text).toArrow())} rows"
            except Exception as error:
                found = condition(error)
        if found != known.condition:
            tally.wrong.append(
                f"accelerated, {known.mode}: {known.query.text}\n      {found}, Spark raises {known.condition}"
            )

    def _by_steps(self, known: Known, tally: Tally) -> bool:
        """Compares; false: there was nothing to compare."""
        try:
            taken = take_over(read_plan(known.frame), dataframe_schema(known.frame))
        except Unsupported as reason:
            tally.left.update(str(reason).split("; "))
            return False
        tally.left.update(set(taken.left))
        self._by_statement(known, taken, tally)
        try:
            ours = self._rows_of_steps(taken)
        except EngineStop as error:
            reason = re.sub(r"\d+", "#", error.message)[:110]
            tally.gave_up[reason] += 1
            tally.examples.setdefault(reason, known.query.text)
            return False
        except Exception as error:
            tally.wrong.append(
                f"{known.mode}: {known.query.text}\n      fails with {type(error).__name__}: {str(error)[:300]}"
            )
            return False
        tally.whole += not taken.left
        tally.rows += len(ours)
        self._compare(known, ours, "", tally)
        return True

    def _by_statement(self, known: Known, taken: TakenOver, tally: Tally) -> None:
        """As one statement in this process, where that can be."""
        try:
            ours = rows_in_process(taken)
        except (Unsupported, EngineStop):
            return
        except Exception as error:
            tally.wrong.append(
                f"in process, {known.mode}: {known.query.text}\n      fails with {type(error).__name__}: {str(error)[:300]}"
            )
            return
        tally.statements += 1
        self._compare(known, ours, "in process, ", tally)

    def _by_job(self, known: list[Known], tally: Tally) -> None:
        self.jobs += 1
        homes = [self.directory / f"job{self.jobs}-{i}" for i in range(len(known))]
        for one, home in zip(known, homes, strict=True):
            self.env.from_dataframe(one.frame).write_parquet(home)
        try:
            self.env.execute()
        except FiresteelError as error:
            tally.wrong.append(f"a job of {[one.query.text for one in known]} fails: {error}")
            return
        for one, home in zip(known, homes, strict=True):
            self._compare(one, pq.read_table(home), "in a job, ", tally)

    def _compare(self, known: Known, ours: pa.Table, how: str, tally: Tally) -> None:
        difference = differs(ours, known.theirs, known.query.ordered)
        if difference and self._takes_any_rows(known.frame):
            tally.left[ANY_ROWS] += 1
        elif difference:
            tally.wrong.append(f"{how}{known.mode}: {known.query.text}\n      {difference}")

    def _takes_any_rows(self, frame) -> bool:
        """Spark's optimised plan has a limit without an order. No query here has, but Spark drops the order below a limit beside a subquery that
        it turns into a join by constants, and answers with any rows itself."""
        return "takes the first rows to come" in self.env.from_dataframe(frame).explain()


def rows_in_process(taken: TakenOver) -> pa.Table:
    """Raises Unsupported where a stage has to compute some of it."""
    one = statement_of(taken.relation, taken.columns)
    with ENGINE.cursor(512 << 20, 2, one.files) as cursor:
        return Running(cursor, one, 2, 1 << 40).wait(taken.schema)


def condition(error: Exception) -> str:
    """Spark's name of an error, which traces of Java's hold, too."""
    found = re.search(r"\[([A-Z][A-Z0-9_]+(\.[A-Z0-9_]+)*)\]", str(error))
    return found[1] if found else str(error).splitlines()[0][:60]


def differs(ours: pa.Table, theirs: pa.Table, ordered: bool = False, digits: int | None = None) -> str:
    """The first difference of two tables in words; empty: there is none. ``digits``: significant ones of doubles that count; None: all do."""
    if (ours.schema.names, ours.schema.types) != (theirs.schema.names, theirs.schema.types):
        return f"types {ours.schema.types}, Spark {theirs.schema.types}"
    a, b = (
        [plain(row, digits) for row in zip(*(c.to_pylist() for c in t.columns), strict=True)] for t in (ours, theirs)
    )
    if not ordered:
        a, b = sorted(a, key=repr), sorted(b, key=repr)
    if a == b:
        return ""
    pair = next((x, y) for x, y in zip_longest(a, b) if x != y)
    return f"{len(a)} rows, Spark {len(b)}; {pair}"


def plain(row: tuple, digits: int | None = None) -> tuple:
    """Zeros of both signs are one: either may stand for a group of them. NaN is itself. ``digits``: of doubles, the significant ones kept."""

    def of(v):
        if not isinstance(v, float):
            return v
        return "NaN" if math.isnan(v) else (v if digits is None else float(f"{v:.{digits}g}")) + 0.0

    return tuple(map(of, row))


def run(
    kit: Kit,
    seed: int,
    queries: int,
    batch: int = 10,
    jobs_every: int = 0,
    tell: Callable[[str], None] = lambda wrong: None,
) -> Tally:
    """Batches in ANSI and legacy mode in turn. ``jobs_every``: such a batch also runs as a job; 0: none does.

    ``tell``: takes each difference as it is found.
    """
    tally, rng = Tally(), random.Random(seed)
    for number, begin in enumerate(range(0, queries, batch)):
        some = [Querying(rng).whole((begin + i) % 4) for i in range(min(batch, queries - begin))]
        as_job = bool(jobs_every) and number % jobs_every == 0
        before = len(tally.wrong)
        kit.held(some, "legacy" if number % 2 else "ansi", tally, as_job)
        for wrong in tally.wrong[before:]:
            tell(f"seed {seed}, queries {begin + 1} to {begin + len(some)}, {wrong}")
    return tally


def counts(tally: Tally) -> str:
    return (
        f"{tally.queries:,} queries, {tally.whole:,} taken over whole, {tally.in_jobs:,} also in jobs, {tally.statements:,} in process, "
        f"{tally.failed:,} that Spark refuses ({tally.raised:,} raise here, too), {tally.rows:,} rows, {len(tally.wrong)} wrong"
    )


def report(tally: Tally) -> str:
    lines = [counts(tally), "left:"] + [f"{n:6} {reason}" for reason, n in tally.left.most_common(40)]
    lines += ["gave up:"] + [
        f"{n:6} {reason} | {tally.examples[reason]}" for reason, n in tally.gave_up.most_common(20)
    ]
    return "\n".join([*lines, "wrong:", *tally.wrong[:20]])
