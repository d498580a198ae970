"""Chains of joins as one statement against one statement for each, and against joins of two inputs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from random import Random

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.effort import examples

from firesteel.arrow import col
from firesteel.task.operators.fragments import composed
from firesteel.task.operators.join import HOWS, RIGHT, BroadcastJoin, HashJoin, build_sides, join_schema
from firesteel.task.operators.relational import Project, project_schema
from firesteel.task.program import GateHead
from join_support import KEY_PAIRS, KEY_UNITS
from operators_support import build, collect, context, files_in, rows, unit

QUICK = settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SELDOM = st.sampled_from([False, False, False, True])
KINDS = [(how, side) for how in HOWS for side in build_sides(how)]


@dataclass
class Chain:
    """``sides``: the build side of each join by its name."""

    fact: pa.Table
    steps: list[BroadcastJoin | Project]
    sides: dict[str, pa.Table]

    @property
    def schema(self) -> pa.Schema:
        last = self.steps[-1]
        return last.join.schema if isinstance(last, BroadcastJoin) else last.schema


def key_column(rng: Random, kind: str, side: int, n: int, *, unique: bool) -> pa.Array:
    values = rng.choices(KEY_PAIRS[kind][2], k=n)
    if unique:
        values = list({repr(value): value for value in values}.values())
    factor = KEY_UNITS.get(kind, (1, 1))[side]
    values = values if factor == 1 else [v if v is None else v * factor for v in values]
    return pa.array(values, KEY_PAIRS[kind][side])


@st.composite
def chains(draw, kinds):
    """A fact with a key of each kind; joins by them, or by a column that an earlier join has brought; projections between."""
    n, rng = draw(st.integers(0, 40)), Random(draw(st.integers(0, 1 << 30)))
    fact = {f"f_{kind}": key_column(rng, kind, 0, n, unique=False) for kind in sorted(KEY_PAIRS)}
    fact |= {"row": pa.array(range(n), pa.int64()), "nested": pa.array([[i] for i in range(n)], pa.list_(pa.int64()))}
    chain = Chain(pa.table(fact), [], {})
    keys = {name: name.removeprefix("f_") for name in fact if name.startswith("f_")}
    """Columns of the stream to the kind of their values."""
    numbers = count()
    for _ in range(draw(st.integers(2, 5))):
        how, side = draw(st.sampled_from(kinds))
        chosen = draw(st.lists(st.sampled_from(sorted(keys)), min_size=1, max_size=draw(SELDOM) + 1, unique=True))
        schema = chain.schema if chain.steps else chain.fact.schema
        join = joined(draw, rng, next(numbers), chain, schema, how, side, [(name, keys[name]) for name in chosen])
        chain.steps.append(join)
        schema = join.join.schema
        keys = {name: kind for name, kind in keys.items() if name in schema.names}
        keys |= {name: "ints" for name in schema.names if name.endswith("_more")}
        if draw(SELDOM):
            chain.steps.append(projected(draw, schema, keys))
    return chain


def joined(draw, rng, number, chain: Chain, schema: pa.Schema, how: str, side: int, keys) -> BroadcastJoin:
    """``keys``: columns of the stream with their kinds."""
    unique = len(keys) == 1 and not draw(SELDOM)
    n = draw(st.integers(0, 6))
    columns = {f"d{number}_{i}": key_column(rng, kind, 1, n, unique=unique) for i, (_, kind) in enumerate(keys)}
    n = len(next(iter(columns.values())))
    names = [f"word {k}" for k in range(n)]
    columns |= {
        f"d{number}_words": pa.array(names, pa.string()).dictionary_encode(),
        f"d{number}_more": key_column(rng, "ints", 0, n, unique=False),
    }
    held = chain.sides[f"side {number}"] = pa.table(columns)
    stream_keys, held_keys = tuple(name for name, _ in keys), tuple(list(columns)[: len(keys)])
    left, right = (schema, held.schema) if side == RIGHT else (held.schema, schema)
    both = (stream_keys, held_keys) if side == RIGHT else (held_keys, stream_keys)
    join = HashJoin(f"join {number}", how, *both, left, right, join_schema(left, right, *both, how))
    return BroadcastJoin(join, side, f"side {number}")


def projected(draw, schema: pa.Schema, keys) -> Project:
    """Leaves out what is no key, or a part of it, or renames or computes it."""
    columns = []
    for name in draw(st.permutations(schema.names)):
        if name in keys or name == "row" or draw(st.booleans()):
            new = f"{name}_" if name not in keys and name != "row" and draw(st.booleans()) else name
            columns.append((new, col(name)))
    if draw(SELDOM) and draw(SELDOM):
        columns.append((f"sum{len(schema)}", col("row") + 1))
    return Project("select", tuple(columns), project_schema(schema, columns)[0])


def run(chain: Chain, operators, tmp_path, batch: int, budget: int = 64 << 20) -> pa.Table:
    ctx = context(tmp_path, budget)
    ctx.builds |= {name: build(table, ctx, batch) for name, table in chain.sides.items()}
    batches = iter(chain.fact.to_batches(max_chunksize=batch))
    for operator in operators:
        batches = operator.apply(batches, ctx)
    return collect(batches, chain.schema)


def hashed(chain: Chain, tmp_path) -> pa.Table:
    """Every join of two tables."""
    ctx, stream = context(tmp_path), chain.fact
    for step in chain.steps:
        if isinstance(step, Project):
            stream = collect(step.apply(iter(stream.to_batches()), ctx), step.schema)
            continue
        sides = [stream, chain.sides[step.side]] if step.build == RIGHT else [chain.sides[step.side], stream]
        stream = collect(step.join.apply_unit([unit(side, ctx) for side in sides], ctx), step.join.schema)
    return stream


@QUICK
@given(chain=chains(KINDS), batch=st.integers(1, 30), budget=st.sampled_from([1 << 9, 1 << 12, 1 << 24]))
def test_a_chain_of_joins(tmp_path, chain, batch, budget):
    found = run(chain, composed(GateHead((0,)), chain.steps)[1], tmp_path, batch, budget)
    assert found.schema.equals(chain.schema)
    assert rows(found) == rows(run(chain, chain.steps, tmp_path, batch)) == rows(hashed(chain, tmp_path))
    assert files_in(tmp_path) == []
