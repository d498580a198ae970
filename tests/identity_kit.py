"""Fingerprints of a script's vertices, the script being text; and a job with a step of every kind."""

from __future__ import annotations

import datetime as dt
import json
import sys
import time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from firesteel import ExecutionEnvironment, agg, window
from firesteel.arrow import col
from firesteel.compile.identity.facts import VertexPrint, digest
from firesteel.compile.identity.prints import JobPrints
from firesteel.compile.identity.walk import Known, Walk

SETTLED = 10**10
"""Nanoseconds: files that tests wrote count as changed so long ago."""
QUIET = {"firesteel.progress": False}


def prints_of(job, pure=()) -> dict[str, VertexPrint]:
    """By the name of the vertex' step or steps."""
    found = JobPrints(job, time.time_ns() + SETTLED, pure).vertices
    return {vertex.name: one for vertex, one in zip(job.job_graph.vertices, found, strict=True)}


def script_prints(text: str, pure=(), **given) -> dict[str, VertexPrint]:
    """Runs the text as a script, which makes an ``env``. ``pure``: names that its user says are; ``given``: globals of it."""
    env = ExecutionEnvironment(options=QUIET)
    names = {"__name__": "__main__", "env": env, "pa": pa, **given}
    exec(compile(text, "script.py", "exec"), names)
    return prints_of(env.compile("a job"), pure)


def changed(old: dict[str, VertexPrint], new: dict[str, VertexPrint]) -> set[str]:
    """The vertices whose program is another."""
    assert old.keys() == new.keys()
    return {name for name in old if old[name].program != new[name].program}


# --- a job of everything ---------------------------------------------------------------------------------------------

SCHEMA = "k bigint, v bigint, d double, s string, t timestamp"


def same(batches):
    yield from batches


def same_frames(frames):
    yield from frames


def same_row(row):
    return {"k": row.k, "v": row.v}


def some_rows(row):
    yield {"k": row.k, "v": row.v}


def is_odd(row):
    return row.v % 2 == 1


async def asked(row):
    return {"k": row.k, "v": row.v}


def group(table):
    return table


def both(left, right):
    return left


def larger(a, b):
    return a if a.v > b.v else b


class Doubling:
    def setup(self):
        self.factor = 2

    def __call__(self, batches):
        yield from batches


class Longest:
    def create(self):
        return 0

    def update(self, state, batch):
        return max(state, batch.num_rows)

    def merge(self, state, other):
        return max(state, other)

    def finish(self, state):
        return state


class Own:
    """A source and a sink of a user's."""

    name = "own"
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    supports_concurrent_execution_attempts = True

    def list_splits(self, data_volume):
        from firesteel import Split

        return [Split(n, 8, f"row {n}") for n in range(3)]

    def read(self, split, ctx):
        yield pa.record_batch([[split], [split]], schema=self.schema)

    def fingerprint(self):
        return b"of today"

    def check(self, schema):
        pass

    def begin(self, job_id):
        self.job = job_id

    def write(self, subtask, attempt):
        return self

    def commit(self, winners):
        pass

    def abort(self, attempts):
        pass


def table() -> pa.Table:
    moment = dt.datetime(2026, 1, 1)
    rows = [(n % 3, n, n / 2, f"word {n}", moment) for n in range(12)]
    types = [pa.int64(), pa.int64(), pa.float64(), pa.string(), pa.timestamp("us")]
    return pa.table(
        [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), types, strict=True)], list("kvdst")
    )


def write_files(folder: Path) -> None:
    """All that ``everything`` reads."""
    folder.mkdir(parents=True)
    rows = table()
    pq.write_table(rows, folder / "rows.parquet")
    for year in (2025, 2026):
        (folder / f"tree/year={year}").mkdir(parents=True)
        pq.write_table(rows, folder / f"tree/year={year}/rows.parquet")
    pa.csv.write_csv(rows.select(["k", "v"]), folder / "rows.csv")
    (folder / "rows.json").write_text("".join(json.dumps(row) + "\n" for row in rows.select(["k", "v"]).to_pylist()))
    (folder / "lines.txt").write_text("one\ntwo\n")
    with pa.OSFile(str(folder / "rows.arrow"), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows)
    (folder / "merged").mkdir()
    pq.write_table(rows.select(["k", "v"]), folder / "merged/a.parquet")


def everything(env, folder: Path):
    """Adds sinks of streams with steps of all kinds to ``env``. ``folder``: as ``write_files`` left it."""
    rows = env.from_arrow(table())
    out = folder / "out"
    files = env.read_parquet(str(folder / "rows.parquet"))
    tree = env.read_parquet(str(folder / "tree")).filter(col("year") == 2026)
    small = files.select("k", "v")

    def end(stream, name):
        stream.rebalance().write_parquet(str(out / name))

    functions = rows.map_in_arrow(same, rows.schema).map_in_arrow(Doubling(), rows.schema, batch_size=5)
    end(
        functions.rebalance()
        .map(same_row, "k bigint, v bigint")
        .flat_map(some_rows, "k bigint, v bigint")
        .filter(is_odd),
        "functions",
    )
    end(
        rows.map(same_row, "k bigint, v bigint", on_error="skip").map_in_pandas(same_frames, "k bigint, v bigint"),
        "errors",
    )
    end(small.map_async(asked, "k bigint, v bigint", concurrency=4, rate="10/s"), "async")
    columns = tree.with_columns(a=col("v") * 2, b=col("d") / 3).fill_nulls(0, "a").drop_nulls("a").filter(col("a") > 1)
    end(columns.sample(0.5, seed=3).limit(10), "columns")
    end(rows.top_k(3, "v"), "top")
    end(rows.sort("v"), "sorted")
    end(rows.describe(), "described")
    end(rows.distinct(), "distinct")
    end(rows.drop_duplicates("k"), "duplicates")
    end(rows.union(rows.filter(col("v") > 3)), "union")
    for step in ("subtract", "except_all", "intersect", "intersect_all"):
        end(getattr(small, step)(rows.select("k", "v")), step)
    end(rows.with_broadcast(side=small).map_in_arrow(with_side, "k bigint"), "side")
    keyed = rows.key_by("k")
    aggregates = {
        "a": agg.sum("v"), "b": agg.mean("d"), "c": agg.count_distinct("s"), "e": agg.stddev("d"), "f": agg.corr("d", "v"), "g": agg.median("d"),
        "h": agg.percentile_approx("d", 0.5), "i": agg.approx_count_distinct("s"), "j": agg.collect_list("v"), "l": agg.collect_set("v"),
        "m": agg.max_by("s", "v"), "n": agg.bit_or("v"), "o": agg.mode("v"), "p": agg.histogram("d", [0.0, 1.0, 2.0]),
        "q": agg.first("s", order_by="v"), "r": agg.user(Longest(), "v", type="bigint"), "u": agg.sum("v").where(col("d") > 1.0),
    }  # fmt: skip
    end(keyed.aggregate(**aggregates), "aggregates")
    end(keyed.aggregate(n=agg.count_distinct("v")), "distinct values")
    end(keyed.count(), "counts")
    end(keyed.reduce(larger), "reduced")
    end(keyed.reduce(larger, on_error="skip"), "reduced, but for errors")
    end(keyed.apply_in_arrow(group, rows.schema), "groups")
    end(keyed.apply_in_pandas(group, rows.schema), "frames")
    end(keyed.cogroup(small.key_by("k")).apply_in_arrow(both, rows.schema), "pairs of groups")
    end(keyed.window(order_by="v", n=window.row_number()), "window")
    end(keyed.join(small.key_by("k"), how="left"), "joined")
    end(keyed.join(small.key_by("k"), how="inner", broadcast="right").filter(col("v") > 0), "broadcast")
    end(rows.join_asof(small.rename({"v": "w"}), on=("v", "w"), by="k"), "asof")
    end(rows.cross_join(small), "crossed")
    end(rows.join_asof(small.rename({"v": "w"}), on=("v", "w")), "asof of all")
    end(rows.unpivot("k", ["v"]), "unpivoted")
    end(rows.with_column("l", col("s")).map_in_arrow(with_lists, "l array<bigint>").explode("l"), "exploded")
    end(rows.rollup("k", "s").aggregate(n=agg.sum("v")), "rolled up")
    end(rows.drop_nulls("s"), "without nulls")
    end(keyed.count().key_by("k").aggregate(m=agg.max("count")), "counts of counts")
    rows.write_parquet(str(out / "buckets"), bucket_by=(4, "k"), sort_by="v")
    rows.write_parquet(str(out / "even"), file_size="1 MB")
    rows.select("k", "v").merge_parquet(str(folder / "merged"), "k")
    rows.select("k", "v").write_delta(str(out / "delta"))
    env.read_csv(str(folder / "rows.csv")).write_csv(str(out / "csv"))
    env.read_json(str(folder / "rows.json")).write_json(str(out / "json"))
    env.read_text(str(folder / "lines.txt")).write_text(str(out / "text"))
    env.read_arrow(str(folder / "rows.arrow")).write_arrow(str(out / "arrow"))
    env.from_source(Own()).write_to(Own())
    env.from_collection([(1, Decimal("1.5"))], ["k", "x"]).write_parquet(str(out / "partitioned"), partition_by="k")
    return env


def with_lists(batches):
    yield from batches


def with_side(batches, side):
    yield from (batch.select(["k"]) for batch in batches)


# --- steps that compiling alone does not make -------------------------------------------------------------------------


def odd_steps(job, folder: Path) -> list:
    """Steps that are made while a job runs, of Spark's plans, and of libraries. ``job``: of everything."""
    from firesteel.connectors.files.paths import find_files
    from firesteel.connectors.files.reading.source import Listed
    from firesteel.connectors.formats.orc_files import OrcFooter, OrcSource
    from firesteel.connectors.formats.plain_lines import PlainCsv, PlainJson, PlainLines, PlainText
    from firesteel.connectors.memory import RangeSource
    from firesteel.task.functions import spark_functions
    from firesteel.task.functions.spark_functions import PickledFunction, SparkFunctions
    from firesteel.task.operators.aggregation.states import AggregateStates
    from firesteel.task.operators.fragments import SqlFragment, SqlOfKeys
    from firesteel.task.operators.join import BroadcastJoin, HashJoin, only_of
    from firesteel.task.program import within

    programs = [vertex.program for vertex in job.job_graph.vertices]
    join = next(part for part in within(programs) if isinstance(part, HashJoin) and part.how == "left")
    nearest = next(part for part in within(programs) if isinstance(part, HashJoin) and part.nearest)
    broadcast = BroadcastJoin(join, 1, "data set 3")
    schema = table().schema
    functions = SparkFunctions(
        "udf", 200, (PickledFunction((b"pickled",), (0,)),), schema, {"a": "b"}, broadcasts=((1, b"x"),)
    )
    seen = spark_functions.Seen(("k",), schema)
    listed = Listed(find_files(str(folder / "lines.txt")), None, [()])
    keys = table().select(["k"])
    return [
        broadcast,
        BroadcastJoin(nearest, 1, "data set 3"),
        AggregateStates("aggregate", ("k",), (), schema),
        only_of(keys, ("k",), schema),
        SqlFragment("filter", "SELECT * FROM input", schema, schema, passed={"k": "k"}, keys=(keys,)),
        SqlOfKeys("join", "SELECT * FROM input0", (("k",),), (schema,), schema, ({"k": "k"},)),
        spark_functions.MapBySpark("map", functions, seen, schema),
        spark_functions.EvaluateBySpark("udf", functions, seen, ("k",), schema),
        spark_functions.GroupsBySpark("groups", functions, seen, ("k",), schema),
        spark_functions.AggregateBySpark("aggregate", functions, seen, ("k",), schema),
        spark_functions.WindowBySpark("window", functions, seen, ("k",), schema, ("v",)),
        spark_functions.CoGroupsBySpark("pairs", functions, (seen, seen), (("k",), ("k",)), schema),
        PlainLines(listed, "lines", pa.schema([("line", pa.string())]), ["line"]),
        PlainText(listed, "lines", pa.schema([("line", pa.string())]), ["line"]),
        PlainCsv(listed, "lines", pa.schema([("line", pa.string())]), ["line"], ",", True, ""),
        PlainJson(listed, "lines", pa.schema([("line", pa.string())]), ["line"]),
        OrcSource(listed, "lines", pa.schema([("line", pa.string())]), [OrcFooter(schema, 1)]),
        RangeSource(0, 1, 10),
    ]


def value_print(value) -> tuple[bytes, list[str]]:
    """The digest of one value, and what cannot be proved of it."""
    walk = Walk(Known(), {}, {"data set 3": 1})
    return digest(walk.encoded(value), walk.finish()), walk.reasons()


def main(folder: str) -> None:
    """Prints the fingerprints of everything as JSON."""
    job = everything(ExecutionEnvironment(options=QUIET), Path(folder)).compile("a job")
    found = JobPrints(job, time.time_ns() + SETTLED).vertices
    odd = [value_print(step)[0].hex() for step in odd_steps(job, Path(folder))]
    print(json.dumps([*([told(one) for one in found]), [odd]]))


def told(one: VertexPrint) -> list:
    """As JSON has it."""
    facts = {name: fact.digest.hex() for name, fact in one.facts.items()}
    return [one.program.hex(), None if one.input is None else one.input.hex(), facts, list(one.unprovable)]


if __name__ == "__main__":
    main(sys.argv[1])
