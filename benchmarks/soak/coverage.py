"""``python -m benchmarks.soak.coverage [--sql FOLDER] [--words WORD ...] [--plans] [--reasons N]``: how much of others' queries is taken over.

Without a folder: the examples in the documentation of PySpark's functions, DataFrames, columns, groups and windows. With one: the
statements of its ``.sql`` files, as in ``sql/core/src/test/resources/sql-tests/inputs`` of Spark's source, each temporary view as rows
of a Parquet file. Each query is computed by Spark, too, and a different answer is printed; the exit code is 1 then. Queries that read
nothing or only pass on rows that Spark has are counted apart: nothing is gained there.
"""

from __future__ import annotations

import argparse
import doctest
import importlib
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from firesteel import accelerate
from firesteel.api.acceleration.handle import Acceleration
from firesteel.errors import WrongAnswerError

MODULES = ("functions.builtin", "dataframe", "column", "group", "window")
_IDLE = ("it reads nothing", "it only passes")
_UNFOLDED = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
"""A rule of Spark's that computes queries of constants while it plans; its own tests leave it out, too."""


class Tally:
    def __init__(self) -> None:
        self.counts, self.reasons, self.wrong = Counter[str](), Counter[str](), list[str]()

    def add(self, left: str) -> None:
        kind = "taken over" if not left else "nothing to gain" if left.startswith(_IDLE) else "left to Spark"
        self.counts[kind] += 1
        if kind == "left to Spark":
            self.reasons[re.sub(r" ?\([^()]*(line \d+ of its SQL|:\d+)\)|(?<=')[^']*(?=')|\d+", "", left)] += 1

    def text(self, most: int) -> str:
        taken, left = self.counts["taken over"], self.counts["left to Spark"]
        share = f"{100 * taken / max(taken + left, 1):.1f} % of {taken + left} queries are taken over"
        idle = f"{self.counts['nothing to gain']} more read nothing or only pass rows on"
        return "\n".join(
            [f"{share}; {idle}", *(f"{n:6}  {reason}" for reason, n in self.reasons.most_common(most)), *self.wrong]
        )


# --- PySpark's examples -------------------------------------------------------------------------------------------------


def examples(spark: Any, words: list[str]) -> Tally:
    tally = Tally()
    for name in MODULES:
        module = importlib.import_module(f"pyspark.sql.{name}")
        known = {**vars(module), "spark": spark, "sc": spark.sparkContext}
        if name in ("dataframe", "column"):
            known["df"] = spark.createDataFrame([(2, "Alice"), (5, "Bob")], ["age", "name"])
        for test in doctest.DocTestFinder().find(module, name, globs=known):
            if not words or any(word in test.name for word in words):
                with accelerate(spark, {"firesteel.sql.verify": 1.0}) as acceleration:
                    doctest.DocTestRunner(verbose=False).run(test, out=lambda _: None)
                for query in acceleration.queries:
                    tally.add("; ".join(query.left))
                    if query.check == "differs":
                        tally.wrong.append(f"another answer than Spark's: {test.name}")
    return tally


# --- files of SQL -------------------------------------------------------------------------------------------------------

_VIEW = re.compile(r"create\s+(?:or\s+replace\s+)?temp(?:orary)?\s+view\s+(\w+)", re.IGNORECASE)
_PIECES = re.compile(r"--[^\n]*|'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|`[^`]*`|;|[^;]", re.DOTALL)


def statements(text: str) -> Iterator[str]:
    """Without comments; a semicolon inside of quotes ends none."""
    found = ""
    for piece in _PIECES.findall(text):
        if piece == ";":
            yield found.strip()
            found = ""
        elif not piece.startswith("--"):
            found += piece
    yield found.strip()


def sql_files(spark: Any, folder: Path, words: list[str], *, plans: bool) -> Tally:
    tally = Tally()
    for path in sorted(folder.rglob("*.sql")):
        if words and not any(word in str(path.relative_to(folder)) for word in words):
            continue
        session = spark.newSession()
        session.conf.set("spark.sql.ansi.enabled", str("nonansi" not in path.parts).lower())
        text = re.sub(
            r"^--IMPORT (\S+)$", lambda other: (folder / other[1]).read_text(), path.read_text(), flags=re.MULTILINE
        )
        for name, value in re.findall(r"^--SET (\S+?)=(\S+)$", text, re.MULTILINE):
            with suppress(Exception):  # of another version
                session.conf.set(name, value)
        with tempfile.TemporaryDirectory() as views:
            for number, statement in enumerate(filter(None, statements(text))):
                _run(
                    session, statement, str(Path(views) / str(number)), tally, f"{path.name}: {statement}", plans=plans
                )
        for table in spark.catalog.listTables():
            with suppress(Exception):
                spark.sql(f"DROP TABLE {table.name}")
        print(f"{path.relative_to(folder)}: {dict(tally.counts)}", flush=True)
    return tally


def _run(spark: Any, statement: str, place: str, tally: Tally, label: str, *, plans: bool) -> None:
    with suppress(Exception):  # Spark refuses many of them, as their tests want
        frame = spark.sql(statement)
        execution = frame._jdf.queryExecution()
        if "Command" in execution.commandExecuted().getClass().getName():
            if view := _VIEW.match(statement):
                rows = spark.table(view[1])
                rows.write.parquet(place)
                spark.read.schema(rows.schema).parquet(place).createOrReplaceTempView(view[1])
            return
        leaves = execution.optimizedPlan().collectLeaves().mkString("|")
        if set(re.findall(r"(?:^|\|)(\w+)", leaves)) == {"OneRowRelation"}:
            return  # Spark has computed it
        with accelerate(spark, {"firesteel.sql.verify": 1.0}) as acceleration:
            try:
                told = acceleration.explain(frame) if plans else frame.collect()
            except WrongAnswerError as wrong:
                tally.wrong.append(f"another answer than Spark's: {label}\n{wrong}")
            tally.add(_left(acceleration, told if plans else ""))


def _left(acceleration: Acceleration, told: str) -> str:
    if told:
        return told.removeprefix("Spark: ") if told.startswith("Spark: ") else ""
    return "; ".join(acceleration.queries[-1].left)


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.soak.coverage", description=__doc__)
    parser.add_argument("--sql", type=lambda text: Path(text).resolve(), metavar="FOLDER", help="of .sql files")
    parser.add_argument(
        "--words", nargs="*", default=[], metavar="WORD", help="only files or examples with such a word"
    )
    parser.add_argument("--plans", action="store_true", help="only plan the statements of files")
    parser.add_argument("--reasons", type=int, default=40, metavar="N", help="most of them to print")
    arguments = parser.parse_args()
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory() as home:
        os.chdir(home)
        builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 2)
        builder = builder.config("spark.ui.enabled", "false").config("spark.sql.optimizer.excludedRules", _UNFOLDED)
        spark = builder.config("spark.sql.warehouse.dir", f"{home}/tables").getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
        folder = arguments.sql
        words = arguments.words
        tally = sql_files(spark, folder, words, plans=arguments.plans) if folder else examples(spark, words)
        spark.stop()
    print(tally.text(arguments.reasons))
    return int(bool(tally.wrong))


if __name__ == "__main__":
    sys.exit(main())
