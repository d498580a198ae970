"""Runs of broadcast joins in one pass: which joins are in one, in which order they are looked up, and what is put together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from firesteel import col
from firesteel.results.keys import KeyTypeError
from firesteel.task.mapped import MappedObjects, let_go
from firesteel.task.operators import star_join
from firesteel.task.operators.broadcast_join import RIGHT, BroadcastJoin
from firesteel.task.operators.build_side import BuildSide
from firesteel.task.operators.join import HashJoin, join_schema
from firesteel.task.operators.relational import Filter, Project, project_schema
from firesteel.task.operators.star_join import StarJoin, composed
from operators_support import build, collect, context

ROWS = 1000
NUMBERS = np.arange(ROWS)
FACT = pa.table({"a": NUMBERS % 10, "b": NUMBERS % 100, "c": NUMBERS % 7, "v": NUMBERS})


def dimension(name: str, n: int) -> pa.Table:
    """Of the keys of ``name`` the first ``n``, each once, with a column of its own."""
    return pa.table({name.upper(): np.arange(n), f"of_{name}": np.arange(n) * 10})


def join(schema: pa.Schema, key: str, dim: pa.Table, how: str = "inner") -> BroadcastJoin:
    keys = (key,), (dim.schema.names[0],)
    made = HashJoin(f"join {key}", how, *keys, schema, dim.schema, join_schema(schema, dim.schema, *keys, how))
    return BroadcastJoin(made, RIGHT, f"side {key}")


def select(schema: pa.Schema, **columns) -> Project:
    return Project("select", tuple(columns.items()), project_schema(schema, list(columns.items()))[0])


class Star:
    """Joins of ``FACT`` with sides by their keys."""

    def __init__(self, tmp_path) -> None:
        self.ctx = context(tmp_path)
        self.steps: list = []

    @property
    def schema(self) -> pa.Schema:
        if not self.steps:
            return FACT.schema
        return self.steps[-1].join.schema if isinstance(self.steps[-1], BroadcastJoin) else self.steps[-1].schema

    def join(self, key: str, dim: pa.Table, how: str = "inner") -> Star:
        self.ctx.builds[f"side {key}"] = build(dim, self.ctx)
        self.steps.append(join(self.schema, key, dim, how))
        return self

    def select(self, **columns) -> Star:
        self.steps.append(select(self.schema, **columns))
        return self

    def run(self, operators=None, rows: int = 10) -> pa.Table:
        batches = iter(FACT.to_batches(max_chunksize=rows))
        for operator in composed(self.steps) if operators is None else operators:
            batches = operator.apply(batches, self.ctx)
        return collect(batches, self.schema)


@pytest.fixture
def star(tmp_path):
    return Star(tmp_path)


def shapes(operators) -> list:
    return [len(o.steps) if isinstance(o, StarJoin) else type(o).__name__ for o in operators]


# --- composing ---------------------------------------------------------------------------------------------------


def test_consecutive_joins_are_one_operator_and_what_computes_ends_it(star):
    star.join("a", dimension("a", 5)).join("b", dimension("b", 50))
    star.select(b=col("b"), c=col("c"), w=col("v"), a=col("of_a"))
    star.join("c", dimension("c", 3), "left")
    computed = select(star.schema, **{name: col(name) for name in star.schema.names}, twice=col("w") * 2)
    last = join(computed.schema, "twice", dimension("w", 10))
    filtered = Filter("filter", col("w") > 3)
    chain = [filtered, *star.steps, computed, last, filtered]
    assert shapes(composed(chain)) == ["Filter", 4, "Project", "BroadcastJoin", "Filter"]
    assert composed([filtered, computed]) == [filtered, computed]
    found = star.run()
    assert found.equals(star.run(star.steps)) and found.num_rows == 250
    assert found.schema.names == ["b", "c", "w", "a", "of_c"]


def test_only_the_columns_that_are_wanted_are_put_together(star):
    star.join("a", dimension("a", 5)).join("b", dimension("b", 50))
    whole, wanted = star.run(), ["of_b", "v"]
    (operator,) = composed(star.steps, wanted)
    batches = list(operator.apply(iter(FACT.to_batches()), star.ctx))
    assert pa.Table.from_batches(batches).equals(whole.select(wanted))
    assert shapes(composed(star.steps[:1], ["of_a"])) == [2]
    assert shapes(composed([*star.steps, Filter("filter", col("v") > 3)], wanted)) == [2, "Filter"]


def test_a_side_with_keys_twice_is_joined_by_itself(star, monkeypatch):
    passes = watched(monkeypatch)
    twice = pa.concat_tables([dimension("b", 10)] * 2)
    star.join("a", dimension("a", 5)).join("c", dimension("c", 3), "semi").join("b", twice)
    star.join("of_a", dimension("of_a", 30), "left").join("of_b", dimension("of_b", 30), "anti")
    assert star.run().to_pylist() == star.run(star.steps).to_pylist()
    assert [len(each._lookups) for each in passes] == [2, 2]


def test_keys_twice_do_not_matter_where_only_their_being_there_does(star, monkeypatch):
    passes = watched(monkeypatch)
    twice = pa.concat_tables([dimension("b", 10)] * 2)
    star.join("a", dimension("a", 5)).join("b", twice, "semi").join(
        "c", pa.concat_tables([dimension("c", 1)] * 2), "anti"
    )
    assert star.run().equals(star.run(star.steps))
    assert [len(each._lookups) for each in passes] == [3]


def watched(monkeypatch) -> list:
    """The passes that are made from here on."""
    made: list = []
    real = star_join._Pass

    def watch(run):
        made.append(real(run))
        return made[-1]

    monkeypatch.setattr(star_join, "_Pass", watch)
    return made


# --- order -------------------------------------------------------------------------------------------------------


def test_the_join_that_leaves_fewest_rows_comes_first(star, monkeypatch):
    passes = watched(monkeypatch)
    monkeypatch.setattr(star_join, "PROBE_ROWS", 100)
    looked_up = sizes_looked_up(monkeypatch)
    star.join("a", dimension("a", 10)).join("b", dimension("b", 2)).join("c", dimension("c", 5))
    found = star.run(rows=100)
    (made,) = passes
    assert made._order.best() == [1, 2, 0]
    assert looked_up[:3] == [100, 100, 2], "as written, as nothing is known"
    assert looked_up[3] == 100 and looked_up[4] == 2, "one in fifty is left for the second"
    assert found.equals(star.run(star.steps))


def sizes_looked_up(monkeypatch) -> list[int]:
    sizes: list[int] = []
    real = BuildSide.find

    def find(self, columns):
        sizes.append(len(columns[0]))
        return real(self, columns)

    monkeypatch.setattr(BuildSide, "find", find)
    return sizes


def test_a_join_by_a_column_of_another_side_follows_it(star, monkeypatch):
    """What leaves nothing is reached by way of what leaves all."""
    passes = watched(monkeypatch)
    star.join("a", dimension("a", 10), "left").join("c", dimension("c", 6)).join("of_a", dimension("of_a", 0), "left")
    star.join("of_of_a", dimension("of_of_a", 0))
    assert star.run().equals(star.run(star.steps))
    (made,) = passes
    assert [sorted(lookup.needs) for lookup in made._lookups] == [[], [], [0], [0, 2]]
    assert made._order.best() == [0, 2, 3, 1]


def test_a_key_that_cannot_be_compared_matters_only_where_the_chain_meets_it(tmp_path, monkeypatch):
    """A year that microseconds do not reach, in a row that the first join leaves out. The second one would come first."""
    monkeypatch.setattr(star_join, "PROBE_ROWS", 10)
    far = pa.array([1] * 15 + [1 << 60] + [1] * 4, pa.int64()).cast(pa.timestamp("s"))
    fact = pa.table({"a": [0] * 15 + [99] + [0] * 4, "at": far})
    star = Star(tmp_path)
    first = join(fact.schema, "a", dimension("a", 1))
    stamps = pa.table({"AT": pa.array([5], pa.timestamp("us"))})
    star.steps = [first, join(first.join.schema, "at", stamps)]
    star.ctx.builds |= {"side a": build(dimension("a", 1), star.ctx), "side at": build(stamps, star.ctx)}

    def run(operators):
        batches = iter(fact.to_batches(max_chunksize=10))
        for operator in operators:
            batches = operator.apply(batches, star.ctx)
        return collect(batches, star.schema)

    assert run(composed(star.steps)).num_rows == run(star.steps).num_rows == 0
    star.steps = [join(fact.schema, "at", stamps), first]
    with pytest.raises(KeyTypeError):
        run(star.steps)


# --- sides -------------------------------------------------------------------------------------------------------


def test_sides_are_read_once_by_all_tasks_that_share_them(tmp_path):
    let_go()
    star = Star(tmp_path)
    star.join("a", dimension("a", 5)).join("b", dimension("b", 50))
    alone = star.run()
    for side in star.ctx.builds.values():
        side.identity = "rows"
    for _ in range(2):
        star.ctx.shared = MappedObjects(tmp_path / "shared")
        assert star.run().equals(alone)
        let_go()
        for side in star.ctx.builds.values():  # whoever comes next finds them without reading
            side.unit = None
    assert len(list((tmp_path / "shared").iterdir())) == 2


def test_output_comes_in_batches_of_bounded_size(star):
    """A side with wide rows: 4 MiB are fewer of them than the least number of rows."""
    wide = pa.table({"A": np.arange(10), "of_a": pa.array(["x" * 5000] * 10)})
    star.join("a", wide).join("b", dimension("b", 100))
    (operator,) = composed(star.steps)
    batches = list(operator.apply(iter([FACT.to_batches()[0]] * 5), star.ctx))
    assert [batch.num_rows for batch in batches] == [1024] * 4 + [5000 - 4096]
    assert pa.Table.from_batches(batches).column("v").to_pylist() == NUMBERS.tolist() * 5
