"""Joins whose smaller side is given whole to the tasks of the other one, decided while the job runs. The answer is DuckDB's."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from firesteel import ExecutionEnvironment, col
from firesteel import functions as F
from firesteel.journal.file import read
from firesteel.scheduler.joins import deferrals
from firesteel.scheduler.kernel.records import MetricsSnapshot
from oracle import assert_same_rows, duckdb_answer

KINDS = {
    "inner": "SELECT l.k, l.v, r.w FROM l JOIN r ON l.k = r.k",
    "left": "SELECT l.k, l.v, r.w FROM l LEFT JOIN r ON l.k = r.k",
    "right": "SELECT r.k, l.v, r.w FROM l RIGHT JOIN r ON l.k = r.k",
    "full": "SELECT coalesce(l.k, r.k) AS k, l.v, r.w FROM l FULL JOIN r ON l.k = r.k",
    "semi": "SELECT l.k, l.v FROM l SEMI JOIN r ON l.k = r.k",
    "anti": "SELECT l.k, l.v FROM l ANTI JOIN r ON l.k = r.k",
}
WHOLE = {"inner": "left right", "left": "right", "right": "left", "full": "", "semi": "right", "anti": "right"}
"""The sides that may be read whole: no row without a match comes out of them."""
OTHER = {"left": "right", "right": "left"}
SMALL = {"data-volume-per-task": "60 kb", "firesteel.decider.least-volume-per-slot": 0, "max-parallelism": 4}
"""So small that the larger side has several tasks, each of which reads the other one whole."""
STAR = """
    SELECT c.color, count(*) AS n, sum(f.v)::BIGINT AS v, sum(s.size)::BIGINT AS sizes
    FROM f JOIN c ON f.a = c.a LEFT JOIN s ON f.b = s.b SEMI JOIN d ON f.d = d.d GROUP BY c.color"""


@pytest.fixture
def patient(monkeypatch):
    """However long the smaller side takes, the other one waits: what is decided does not depend on the machine."""
    monkeypatch.setattr(deferrals, "WAIT_SHARE", 1e9)


@cache
def tables(small: str, of_strings: bool) -> dict[str, pa.Table]:
    """Some keys of each side are the other one's too, some are null, some are there twice."""
    rng = np.random.default_rng(11)

    def side(column: str, rows: int, low: int, high: int) -> pa.Table:
        numbers = rng.integers(low, high, rows)
        keys = [f"key {k}" for k in numbers] if of_strings else numbers * 1_000_003
        masked = pa.array(keys, mask=rng.random(rows) < 0.05)
        return pa.table({"k": masked, column: rng.integers(0, 1 << 40, rows)})

    few, many = (200, 100, 300), (8000, 0, 600)
    return {"l": side("v", *(few if small == "left" else many)), "r": side("w", *(few if small == "right" else many))}


@cache
def star_tables() -> dict[str, pa.Table]:
    rng = np.random.default_rng(12)
    rows = 20_000
    fact = {
        "a": pa.array(rng.integers(0, 40, rows), mask=rng.random(rows) < 0.02),
        "b": pa.array([f"b{k}" for k in rng.integers(0, 60, rows)]),
        "d": rng.integers(0, 30, rows).astype(np.int32),
        "v": rng.integers(0, 1000, rows),
    }
    return {
        "f": pa.table(fact),
        "c": pa.table({"a": np.arange(30), "color": pa.array([f"color {k % 7}" for k in range(30)])}),
        "s": pa.table({"b": pa.array([f"b{k % 50}" for k in range(70)]), "size": np.arange(70)}),
        "d": pa.table({"d": np.array([1, 2, 2, 3, 5, 7, 11, 13], np.int32)}),
    }


def run(session, tmp_path, stream_of, **options):
    """``stream_of`` gets an environment. Returns the job's result and what it wrote."""
    places = {f"firesteel.{what}.directory": str(tmp_path / what) for what in ("journal", "storage")}
    given = {**SMALL, "firesteel.progress": False, "restart-strategy.fixed-delay.delay": "10 ms", **places, **options}
    env = ExecutionEnvironment(spark=session, options=given)
    stream_of(env).write_parquet(tmp_path / "out")
    result = env.execute("join")
    assert [p for p in (tmp_path / "storage").rglob("*") if p.is_file()] == []
    return result, pq.read_table(tmp_path / "out")


def two_sides(env, how, given, **hint):
    left, right = (env.from_arrow(given[name]).key_by("k") for name in ("l", "r"))
    return left.join(right, how, **hint)


def star(env, behind_each=lambda stream: stream):
    """A fact with three dimensions, and an aggregation."""
    f, c, s, d = (env.from_arrow(star_tables()[name]) for name in "fcsd")
    joined = behind_each(f.key_by("a").join(c.key_by("a")))
    joined = behind_each(joined.key_by("b").join(s.key_by("b"), "left"))
    joined = behind_each(joined.key_by("d").join(d.key_by("d"), "semi"))
    return joined.key_by("color").aggregate(n=("*", "count"), v=("v", "sum"), sizes=("size", "sum"))


def num_tasks(result, vertex: int) -> int:
    """Of a join that reads the splits of its larger side itself."""
    (told,) = [d.result for d in result.decision_records if d.what == "source parallelism" and d.vertex == vertex]
    return told


def choices(result) -> list[tuple[str, str]]:
    return [(d.result, d.rule) for d in result.decision_records if d.what == "join"]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("of_strings", [False, pytest.param(True, marks=pytest.mark.full)], ids=["ints", "strings"])
@pytest.mark.parametrize(
    ("how", "small"),
    [
        pytest.param(how, small, marks=() if small == "right" or how in ("right", "semi") else pytest.mark.full)
        for how in KINDS
        for small in ("left", "right")
    ],
)
def test_the_smaller_side_is_read_whole_where_that_gives_the_same_rows(session, tmp_path, how, small, of_strings):
    given = tables(small, of_strings)
    result, found = run(session, tmp_path, lambda env: two_sides(env, how, given))
    assert_same_rows(found, duckdb_answer(KINDS[how], **given))
    if not WHOLE[how]:
        assert choices(result) == []
    elif small in WHOLE[how]:
        assert choices(result) == [(f"broadcast {small}", "bytes")]
        assert num_tasks(result, vertex=2) > 1
    else:
        assert choices(result) == [("hash", "too late")]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("small", [pytest.param("left", marks=pytest.mark.full), "right"])
@pytest.mark.parametrize(
    "how",
    [
        pytest.param(how, marks=() if how in ("left", "full", "semi", "as of") else pytest.mark.full)
        for how in (*KINDS, "as of", "as of, inner")
    ],
)
def test_a_small_side_of_a_join_by_order_is_read_whole(session, tmp_path, how, small):
    given = tables(small, True)

    def stream_of(env):
        left, right = (env.from_arrow(given[name]) for name in ("l", "r"))
        if how.startswith("as of"):
            return left.join_asof(right, ("v", "w"), "k", how="inner" if "inner" in how else "left")
        return left.join(right, ["k", ("v", ">=", "w")], how)

    result, found = run(session, tmp_path, stream_of)
    if how.startswith("as of"):
        kind = "" if "inner" in how else "LEFT"
        query = f"SELECT l.k, l.v, r.w FROM l ASOF {kind} JOIN r ON l.k = r.k AND l.v >= r.w"
    else:
        query = f"{KINDS[how]} AND l.v >= r.w"
    assert_same_rows(found, duckdb_answer(query, **given))
    whole = WHOLE.get(how, "right")
    if not whole:
        assert choices(result) == []
    elif small in whole:
        assert choices(result) == [(f"broadcast {small}", "bytes")]
        assert num_tasks(result, vertex=2) > 1
    else:
        assert [result for result, _ in choices(result)] == ["hash"]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("hint", "wanted"), [("right", [("broadcast right", "hint")]), ("never", [])])
def test_a_hint_for_a_join_by_order(session, tmp_path, hint, wanted):
    given = tables("left", False)

    def stream_of(env):
        return env.from_arrow(given["l"]).join(env.from_arrow(given["r"]), ["k", ("v", ">=", "w")], broadcast=hint)

    result, found = run(session, tmp_path, stream_of)
    assert_same_rows(found, duckdb_answer(f"{KINDS['inner']} AND l.v >= r.w", **given))
    assert choices(result) == wanted


@pytest.mark.usefixtures("patient")
def test_a_step_by_the_key_behind_a_join_by_order(session, tmp_path):
    given = tables("right", False)

    def stream_of(env):
        joined = env.from_arrow(given["l"]).join(env.from_arrow(given["r"]), ["k", ("v", ">=", "w")])
        return joined.key_by("k").aggregate(n=("*", "count"))

    result, found = run(session, tmp_path, stream_of)
    query = f"SELECT k, count(*) AS n FROM ({KINDS['inner']} AND l.v >= r.w) GROUP BY k"
    assert_same_rows(found, duckdb_answer(query, **given))
    assert choices(result) == [("broadcast right", "bytes")]


@pytest.mark.parametrize("of_strings", [False, pytest.param(True, marks=pytest.mark.full)], ids=["ints", "strings"])
@pytest.mark.parametrize("how", [pytest.param(how, marks=() if how == "left" else pytest.mark.full) for how in KINDS])
def test_the_option_leaves_both_exchanges(session, tmp_path, how, of_strings):
    given = tables("right", of_strings)
    stream_of = partial(two_sides, how=how, given=given)
    result, found = run(session, tmp_path, stream_of, **{"firesteel.join.adaptive": False})
    assert_same_rows(found, duckdb_answer(KINDS[how], **given))
    assert not [d for d in result.decision_records if d.what in ("join", "join order")]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("hint", "wanted"), [("left", [("broadcast left", "hint")]), ("never", [])])
def test_a_hint_is_followed(session, tmp_path, hint, wanted):
    """``left`` is the larger side."""
    given = tables("right", False)
    result, found = run(session, tmp_path, lambda env: two_sides(env, "inner", given, broadcast=hint))
    assert_same_rows(found, duckdb_answer(KINDS["inner"], **given))
    assert choices(result) == wanted


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("empty", ["l", "r"])
@pytest.mark.parametrize(
    "how", ["inner", "left", *(pytest.param(h, marks=pytest.mark.full) for h in ("right", "anti"))]
)
def test_a_side_without_rows(session, tmp_path, how, empty):
    small = "left" if empty == "l" else "right"
    given = tables(small, False)
    given = {**given, empty: given[empty].slice(0, 0)}
    result, found = run(session, tmp_path, lambda env: two_sides(env, how, given))
    assert_same_rows(found, duckdb_answer(KINDS[how], **given))
    if small in WHOLE[how]:
        assert choices(result) == [(f"broadcast {small}", "bytes")]


@pytest.mark.usefixtures("patient")
def test_the_second_run_waits_for_the_side_that_a_function_leaves_little_of(session, tmp_path):
    """By what is read the right side is the smaller one; of the left one a hundredth comes out."""
    given = {side: pa.table({"k": np.arange(rows), column: np.arange(rows)}) for side, column, rows in SIDES}
    runs = []
    for number in range(2):
        folder = tmp_path / str(number)
        result, found = run(
            session, folder, lambda env: of_few(env, given), **{"firesteel.journal.directory": str(tmp_path)}
        )
        assert_same_rows(
            found, duckdb_answer("SELECT l.k, l.v, r.w FROM l JOIN r ON l.k = r.k WHERE l.k % 100 = 0", **given)
        )
        runs.append(result)
    first, second = runs
    assert choices(first) == [("hash", "bytes")]
    assert choices(second) == [("broadcast left", "bytes")]
    (told,) = [d for d in second.decision_records if d.what == "join order"]
    assert told.reason.startswith(
        "put off until the left side of [2] is there, estimated 1.25 KiB: 125 KiB read, of which 1 % came out"
    )
    assert exchanged(second) < 0.1 * exchanged(first)


SIDES = (("l", "v", 8000), ("r", "w", 5000))


def of_few(env, given):
    def hundredth(batches):
        for batch in batches:
            yield batch.filter(pa.array(np.asarray(batch["k"]) % 100 == 0))

    left, right = (env.from_arrow(given[name]) for name in ("l", "r"))
    return left.map_in_arrow(hundredth, given["l"].schema).key_by("k").join(right.key_by("k"))


def exchanged(result) -> int:
    """Plain bytes that all steps wrote for others."""
    *_, last = [record for record in read(result.journal) if isinstance(record, MetricsSnapshot)]
    return sum(int(numbers.get("numBytesProduced", 0)) for numbers in last.vertices.values())


# --- stars ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("patient")
def test_a_star_is_joined_in_the_tasks_that_read_the_fact(session, tmp_path):
    result, found = run(session, tmp_path, star)
    assert_same_rows(found, duckdb_answer(STAR, **star_tables()))
    assert choices(result) == [("broadcast right", "bytes")] * 3
    assert num_tasks(result, max(d.vertex for d in result.decision_records if d.what == "join")) > 1


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("behind_each", ["one pass", pytest.param("by themselves", marks=pytest.mark.full)])
def test_a_side_is_read_and_indexed_once_per_executor(session, tmp_path, behind_each):
    """By several tasks in two workers. A step behind the joins looks at what lies on the executor's disk."""
    seen = tmp_path / "seen"
    seen.mkdir()

    def watch(stream):
        note = partial(note_shared, storage=tmp_path / "storage", seen=seen)
        return stream.map_in_arrow(note, stream.schema)

    def stream_of(env):
        if behind_each == "by themselves":
            return star(env, watch)
        f, c, s, d = (env.from_arrow(star_tables()[name]) for name in "fcsd")
        joined = f.key_by("a").join(c.key_by("a")).key_by("b").join(s.key_by("b"), "left")
        joined = watch(joined.key_by("d").join(d.key_by("d"), "semi"))
        return joined.key_by("color").aggregate(n=("*", "count"), v=("v", "sum"), sizes=("size", "sum"))

    result, found = run(session, tmp_path, stream_of)
    assert_same_rows(found, duckdb_answer(STAR, **star_tables()))
    assert choices(result) == [("broadcast right", "bytes")] * 3
    last = max(d.vertex for d in result.decision_records if d.what == "join")
    assert num_tasks(result, last) > 1
    rows = {name: table.num_rows for name, table in star_tables().items()}
    (read,) = (row["rows_in"] for row in result.vertices.to_pylist() if row["vertex"] == last)
    assert read == sum(rows.values())
    assert len(list(seen.iterdir())) == 3


def note_shared(batches, storage: Path, seen: Path):
    """Notes the names of what workers share when all joins before this step have given rows."""
    for batch in batches:
        for path in storage.glob("*.scratch/shared/*"):
            if "." not in path.name:
                (seen / path.name).touch()
        yield batch


def test_a_star_with_an_exchange_per_join_gives_the_same_rows(session, tmp_path):
    result, found = run(session, tmp_path, star, **{"firesteel.join.adaptive": False})
    assert_same_rows(found, duckdb_answer(STAR, **star_tables()))
    assert choices(result) == []


def test_a_star_whose_fact_does_not_wait_gives_the_same_rows(session, tmp_path, monkeypatch):
    """Every wait ends at the first idle slot: some joins come too late, whichever they are."""
    monkeypatch.setattr(deferrals, "WAIT_SHARE", 0.0)
    _, found = run(session, tmp_path, star)
    assert_same_rows(found, duckdb_answer(STAR, **star_tables()))


@pytest.mark.usefixtures("patient")
def test_user_functions_between_the_joins_see_every_row_once(session, tmp_path):
    result, found = run(session, tmp_path, lambda env: star(env, tripled))
    wanted = duckdb_answer(STAR.replace("sum(f.v)", "sum(27 * f.v)"), **star_tables())
    assert_same_rows(found, wanted)
    assert choices(result) == [("broadcast right", "bytes")] * 3


def tripled(stream):
    def triple(batches):
        for batch in batches:
            place = batch.schema.get_field_index("v")
            values = pa.array(np.asarray(batch.column(place)) * 3)
            yield batch.set_column(place, batch.schema.field(place), values)

    return stream.map_in_arrow(triple, stream.schema)


@pytest.mark.usefixtures("patient")
def test_columns_of_the_dimensions_serve_the_steps_behind(session, tmp_path):
    """Expressions behind and between the joins, with the key that was joined by still there."""

    def stream_of(env: ExecutionEnvironment):
        f, c = (env.from_arrow(star_tables()[name]) for name in "fc")
        joined = c.filter(col("a") < 20).key_by("a").join(f.filter(col("v") > 500).key_by("a"))
        return joined.filter(col("color") != "color 3").select("a", "color", twice=col("v") * 2)

    result, found = run(session, tmp_path, stream_of)
    sql = "SELECT c.a, c.color, f.v * 2 AS twice FROM c JOIN f ON f.a = c.a WHERE c.a < 20 AND v > 500 AND color <> 'color 3'"
    assert_same_rows(found, duckdb_answer(sql, **star_tables()))
    assert choices(result) == [("broadcast left", "bytes")]


# --- sides of all sorts --------------------------------------------------------------------------------------

RIGHT = ("broadcast right", "bytes")


def by_a_column_of_the_side_before(env):
    """What the second join compares came from the first one's small side."""
    f, c = (env.from_arrow(star_tables()[name]) for name in "fc")
    colors = env.from_arrow(pa.table({"color": [f"color {k}" for k in range(5)], "rank": range(5)}))
    joined = f.key_by("a").join(c.key_by("a")).key_by("color").join(colors.key_by("color"), "left")
    return joined.select("v", "color", "rank")


def twice_with_one_side(env):
    """By two keys of the fact: both joins read the same data set."""
    f, s = (env.from_arrow(star_tables()[name]) for name in "fs")
    s = s.key_by("b").aggregate({"size": "max"}).key_by("b")
    more = f.with_column("other", F.concat(F.lit("b"), col("d")))
    return more.key_by("b").join(s).key_by("other").join(s, suffix="_2").select("v", "b", "size", "size_2")


def with_side_inputs(env):
    f, c, d = (env.from_arrow(star_tables()[name]) for name in "fcd")
    few = c.with_broadcast(seen=d).map_in_arrow(added, pa.schema([("a", pa.int64()), ("color", pa.string())]))
    many = f.with_broadcast(told=c).map_in_arrow(handed_on, f.schema)
    return many.key_by("a").join(few.key_by("a")).select("v", "color")


def added(batches, seen):
    """The number of rows of the side input goes into a text."""
    for batch in batches:
        colors = pa.array([f"{color} of {seen.num_rows}" for color in batch.column("color").to_pylist()])
        yield pa.RecordBatch.from_arrays([batch.column("a"), colors], names=["a", "color"])


def handed_on(batches, told):
    assert told.num_rows
    yield from batches


def with_itself(env):
    """Each task reads all that one step has made, and joins it with its own part of that."""
    f = env.from_arrow(star_tables()["f"]).filter(col("v") < 20)
    return f.key_by("d").join(f.select("d", w=col("v")).key_by("d"), "inner").select("d", "v", "w")


def of_a_union(env):
    c = env.from_arrow(star_tables()["c"])
    both = c.filter(col("a") < 10).union(c.filter(col("a") >= 5))
    return env.from_arrow(star_tables()["f"]).key_by("a").join(both.key_by("a")).select("v", "color")


def with_a_union(env):
    f = env.from_arrow(star_tables()["f"])
    both = f.filter(col("v") < 100).union(f.filter(col("v") > 50))
    return both.key_by("a").join(env.from_arrow(star_tables()["c"]).key_by("a"), broadcast="right").select("v", "color")


def of_a_united_step(env):
    """The union is read by others too, so it is a step of its own, and an input like any other."""
    c = env.from_arrow(star_tables()["c"])
    both = c.union(c.filter(col("a") >= 5)).rebalance().map_in_arrow(iter, c.schema)
    return env.from_arrow(star_tables()["f"]).key_by("a").join(both.key_by("a")).select("v", "color")


SHAPES = {
    by_a_column_of_the_side_before: (
        "SELECT v, color, rank FROM f JOIN c USING (a) LEFT JOIN (SELECT 'color ' || n AS color, n AS rank FROM range(5) t(n)) USING (color)",
        [RIGHT, RIGHT],
    ),
    twice_with_one_side: (
        "WITH t AS (SELECT b, max(size) AS size FROM s GROUP BY b) SELECT v, f.b, t.size, u.size AS size_2 "
        "FROM f JOIN t ON f.b = t.b JOIN t AS u ON 'b' || f.d = u.b",
        [RIGHT, RIGHT],
    ),
    with_side_inputs: (
        "SELECT v, color || ' of ' || (SELECT count(*) FROM d) AS color FROM f JOIN c USING (a)",
        [RIGHT],
    ),
    with_itself: (
        "SELECT x.d, x.v, y.v AS w FROM f x JOIN f y ON x.d = y.d WHERE x.v < 20 AND y.v < 20",
        [("broadcast left", "bytes")],
    ),
    of_a_union: (
        "SELECT v, color FROM f JOIN (SELECT * FROM c WHERE a < 10 UNION ALL SELECT * FROM c WHERE a >= 5) USING (a)",
        [],
    ),
    with_a_union: (
        "SELECT v, color FROM (SELECT * FROM f WHERE v < 100 UNION ALL SELECT * FROM f WHERE v > 50) JOIN c USING (a)",
        [],
    ),
    of_a_united_step: (
        "SELECT v, color FROM f JOIN (SELECT * FROM c UNION ALL SELECT * FROM c WHERE a >= 5) USING (a)",
        [RIGHT],
    ),
}


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("stream_of", SHAPES)
def test_sides_of_all_sorts(session, tmp_path, stream_of):
    sql, wanted = SHAPES[stream_of]
    result, found = run(session, tmp_path, stream_of)
    assert_same_rows(found, duckdb_answer(sql, **star_tables()))
    assert choices(result) == wanted


@pytest.mark.usefixtures("patient")
def test_a_side_that_is_kept_is_broadcast_when_it_is_made_and_when_it_is_read(session, tmp_path):
    places = {f"firesteel.{what}.directory": str(tmp_path / what) for what in ("journal", "storage")}
    env = ExecutionEnvironment(spark=session, options={**SMALL, "firesteel.progress": False, **places})
    f, c = (env.from_arrow(star_tables()[name]) for name in "fc")
    few = c.filter(col("a") < 20).cache()
    for number in range(2):
        joined = f.key_by("a").join(few.key_by("a")).select("v", "color")
        joined.write_parquet(tmp_path / f"{number}")
        result = env.execute("kept")
        assert_same_rows(
            pq.read_table(tmp_path / f"{number}"),
            duckdb_answer("SELECT v, color FROM f JOIN c USING (a) WHERE a < 20", **star_tables()),
        )
        assert few.is_cached and choices(result) == [RIGHT]
    env.close()


# --- failures ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("patient")
def test_a_side_that_is_made_again_with_other_rows_is_the_same_to_all(session, tmp_path):
    """Its rows, which are more than a worker keeps of them, say which attempt has made them. When some tasks have read them and
    finished, they are lost: what the executor has laid down of them serves the others."""
    given = {"l": tables("right", False)["l"].slice(0, 2_500), "r": tables("left", False)["r"].slice(0, 2_500)}
    mark, storage = tmp_path / "mark", tmp_path / "storage"

    def stream_of(env: ExecutionEnvironment):
        left, right = (env.from_arrow(given[name]) for name in ("l", "r"))
        schema = pa.schema([*right.schema, ("made", pa.string())])
        right = right.map_in_arrow(marked, schema).as_nondeterministic()
        joined = left.key_by("k").join(right.key_by("k"), broadcast="right")
        return joined.map_in_arrow(partial(lose_late, storage=storage, mark=mark), joined.schema)

    result, found = run(session, tmp_path, stream_of, **{"data-volume-per-task": "10 kb"})
    assert mark.exists() and choices(result) == [("broadcast right", "hint")]
    assert_same_rows(found.drop(["made"]), duckdb_answer(KINDS["inner"], **given))
    by_row = found.group_by("w").aggregate([("made", "count_distinct")])
    assert pc.max(by_row["made_count_distinct"]).as_py() == 1, "some rows are of one attempt, some of another"


def marked(batches):
    import uuid

    token = uuid.uuid4().hex
    for batch in batches:
        yield batch.append_column("made", pa.array([token] * batch.num_rows))


def lose_late(batches, storage: Path, mark: Path):
    """The third task that has read it deletes all that is stored, and fails."""
    yield from batches
    seen = [mark.with_name(f"task {k}") for k in range(3)]
    for place, file in enumerate(seen):
        try:
            file.touch(exist_ok=False)
        except FileExistsError:
            continue
        if place == 2:
            mark.touch()
            for stored in storage.rglob("d*-*"):
                stored.unlink(missing_ok=True)
            raise ValueError("once")
        return


@pytest.mark.usefixtures("patient")
def test_a_task_that_reads_a_side_whole_runs_again_when_it_fails(session, tmp_path):
    """It fails when it has given rows already."""
    mark = tmp_path / "mark"
    result, found = run(session, tmp_path, lambda env: star(env, partial(failing_once, mark=mark)))
    assert mark.exists()
    assert_same_rows(found, duckdb_answer(STAR, **star_tables()))
    assert choices(result) == [("broadcast right", "bytes")] * 3
    assert [d for d in result.decision_records if d.what == "failover"]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("and_mapped", [False, True], ids=["stored", "stored and mapped"])
def test_a_side_whose_rows_are_lost_is_made_again_where_the_executor_has_lost_it_too(session, tmp_path, and_mapped):
    """All that is stored is deleted when the only task has read the side; then that task fails. What its executor shares serves
    the next attempt; without that it finds the side gone."""
    given = tables("right", False)
    lost = partial(lose, storage=tmp_path / "storage", mark=tmp_path / "mark", and_mapped=and_mapped)

    def stream_of(env: ExecutionEnvironment):
        joined = two_sides(env, "inner", given)
        return joined.map_in_arrow(lost, joined.schema)

    result, found = run(session, tmp_path, stream_of, **{"max-parallelism": 1})
    assert_same_rows(found, duckdb_answer(KINDS["inner"], **given))
    assert choices(result) == [("broadcast right", "bytes")] and (tmp_path / "mark").exists()
    attempts = result.attempts.to_pylist()
    assert {row["attempt"] for row in attempts if row["vertex"] == 1} == ({0, 1} if and_mapped else {0})


def failing_once(stream, mark: Path):
    def fail(batches):
        for batch in batches:
            yield batch
            try:
                mark.touch(exist_ok=False)
            except FileExistsError:
                continue
            raise ValueError("once")

    return stream.map_in_arrow(fail, stream.schema)


def lose(batches, storage: Path, mark: Path, and_mapped: bool):
    from firesteel.results.storage import objects
    from firesteel.task.mapped import let_go

    for batch in batches:
        yield batch
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            continue
        for stored in storage.rglob("*"):
            if stored.is_file() and (and_mapped if stored.parent.name == "shared" else stored.match("d*-*")):
                stored.unlink()
        if and_mapped:
            let_go()
            objects._worker.clear()  # small objects are kept whole
        raise ValueError("once")
