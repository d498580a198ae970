"""Columns of which lineage says nothing about a source's column do not change with it: random pipelines are run on other values of one column."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.effort import examples

from firesteel import ExecutionEnvironment, window
from firesteel.arrow import col
from firesteel.connectors.memory import TableSource

COLUMNS = ("a", "b", "c", "d")
OPTIONS = {"firesteel.lineage.openlineage.enabled": True}


class Named(TableSource):
    def datasets(self):
        return [("test", self.name)]


@st.composite
def steps(draw):
    """A list of steps as (what, columns): applied to a stream whose columns are always a to d."""
    names = st.sampled_from(COLUMNS)
    kinds = ("compute", "swap", "filter", "aggregate", "join", "union", "distinct", "sort", "window")
    return [
        (draw(st.sampled_from(kinds)), draw(names), draw(names), draw(names)) for _ in range(draw(st.integers(1, 5)))
    ]


def applied(stream, step):
    what, x, y, z = step
    match what:
        case "compute":
            return stream.with_column(x, col(y) * 2 + col(z))
        case "swap":
            return stream.select(**{name: col({x: y, y: x}.get(name, name)) for name in COLUMNS})
        case "filter":
            return stream.filter(col(x) > col(y))
        case "aggregate":
            rest = [name for name in COLUMNS if name != x]
            made = stream.key_by(x).aggregate(dict.fromkeys(rest, "max"))
            names = dict(zip(made.schema.names, (x, *rest), strict=True))
            return made.rename(names).select(*COLUMNS)
        case "join":
            other = stream.select(**{x: col(x), "other": col(y)}).distinct()
            joined = stream.key_by(x).join(other.key_by(x))
            return joined.with_column(z, col("other")).select(*COLUMNS) if z != x else joined.select(*COLUMNS)
        case "union":
            return stream.union(stream.with_column(x, col(y)))
        case "distinct":
            return stream.drop_duplicates(x)
        case "sort":
            return stream.sort(*dict.fromkeys((x, y))).limit(3)
        case _:
            return (
                stream.key_by(x)
                .window(w=window.cumulative_max(y), order_by=z)
                .with_column(z, col("w"))
                .select(*COLUMNS)
            )


def run(table, plan):
    env = ExecutionEnvironment(options=OPTIONS)
    stream = env.from_source(Named(table, "source"))
    for step in plan:
        stream = applied(stream, step)
    return env, stream


@settings(max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    plan=steps(),
    rows=st.lists(st.tuples(*4 * [st.integers(-3, 3)]), min_size=1, max_size=8),
    changed=st.sampled_from(COLUMNS),
    values=st.lists(st.integers(-3, 3), min_size=8, max_size=8),
)
def test_a_column_depends_on_no_others_than_those_that_are_told(plan, rows, changed, values, tmp_path_factory):
    before = pa.table(dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True)))
    place = before.schema.names.index(changed)
    after = before.set_column(place, changed, pa.array(values[: len(rows)]))
    env, stream = run(before, plan)
    stream.write_parquet(tmp_path_factory.mktemp("lineage") / "out")
    (output,) = env.compile().external.outputs
    told = {name: {origin.column for origin in output.origins.get(name, ())} for name in COLUMNS}
    decided = {origin.column for origin in output.decided_by}
    first, second = (run(table, plan)[1].run_locally(rows=None) for table in (before, after))
    if changed in decided:
        return
    for name in COLUMNS:
        if changed not in told[name]:
            assert sorted(row[name] for row in first) == sorted(row[name] for row in second), (name, told, decided)
