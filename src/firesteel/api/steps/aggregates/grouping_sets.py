"""Aggregates by several sets of keys at once: rollup, cube, grouping sets. Every row is counted in each of them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import pyarrow as pa

from firesteel.api.steps import keyed
from firesteel.api.steps.aggregates import agg
from firesteel.api.steps.aggregates.agg import AggregateCall
from firesteel.api.steps.aggregates.written import calls, prepared
from firesteel.api.steps.common import step_at
from firesteel.api.steps.pipeline import Pipeline
from firesteel.api.steps.projection import project
from firesteel.api.steps.spark_columns import plain_names
from firesteel.compile.stream_graph import ChainedStep
from firesteel.errors import UsageError
from firesteel.humanize import named_twice
from firesteel.task.expressions import column
from firesteel.task.operators.relational import Expand, check_columns

MOST_CUBED = 12
"""Columns: 4,096 sets."""
_NUMBER = "__grouping_id"


@dataclass(frozen=True, slots=True)
class GroupingSets:
    """``number``: the name of the column of the set's number; None: it is not wanted."""

    pipeline: Pipeline
    step: str
    keys: tuple[str, ...]
    sets: tuple[tuple[str, ...], ...]
    number: str | None

    def over(self, pipeline: Pipeline) -> GroupingSets:
        """The same of other rows, which have these columns too."""
        return replace(self, pipeline=pipeline)

    def aggregate(self, given: Sequence[Any], named: Mapping[str, Any]) -> Pipeline:
        with step_at(f"{self.step}.aggregate") as place:
            return self.aggregated(calls(given, named, "aggregate", self.pipeline.schema), place)

    def count(self) -> Pipeline:
        with step_at(f"{self.step}.count") as place:
            return self.aggregated([("count", agg.count())], place)

    def _way(self, kept: tuple[str, ...], names: list[str]) -> tuple[str | tuple[Any], ...]:
        """The rows of a set: null for the keys that are not in it, and as the last column its number, Spark's grouping_id."""
        left_out = set(self.keys) - set(kept)
        number = sum(1 << place for place, key in enumerate(reversed(self.keys)) if key in left_out)
        return (*((None,) if name in left_out else name for name in names), (number,))

    def aggregated(self, written: Sequence[tuple[str, AggregateCall]], place: str) -> Pipeline:
        """The keys, the set's number if it is wanted, and these aggregates, by their names."""
        self.pipeline.refuse_sides(self.step)
        schema = self.pipeline.schema
        made = prepared(written, schema, "aggregate", shadowed=self.keys)
        aggs = tuple(made.aggregations)
        kind = f"{self.step}({', '.join(self.keys)})"
        needed = keyed.needed(schema, self.keys, aggs, made.computed)
        narrow = project(self.pipeline, f"columns of {kind}", needed, place)
        fields = [field.with_nullable(True) if field.name in self.keys else field for field in narrow.schema]
        expanded = pa.schema([*fields, pa.field(_NUMBER, pa.int64(), nullable=False)])
        work = ChainedStep(Expand(kind, tuple(self._way(kept, narrow.names) for kept in self.sets), expanded))
        rows = narrow.then(kind, work, expanded, place)
        out = keyed.aggregate_of(rows, (*self.keys, _NUMBER), aggs, place)
        renamed = {_NUMBER: self.number}
        pairs = [(renamed.get(n, n), column(n)) for n in out.names]
        return project(out, f"groups of {kind}", [(n, e) for n, e in pairs if n is not None], place)


def rollup(pipeline: Pipeline, columns: Sequence[Any], number: str | None) -> GroupingSets:
    with step_at("rollup"):
        keys = _keys(pipeline, columns, "rollup")
        sets = tuple(keys[:many] for many in range(len(keys), -1, -1))
        return GroupingSets(pipeline, "rollup", keys, sets, number)


def cube(pipeline: Pipeline, columns: Sequence[Any], number: str | None) -> GroupingSets:
    with step_at("cube"):
        keys = _keys(pipeline, columns, "cube")
        if len(keys) > MOST_CUBED:
            raise UsageError(
                f"A cube of {len(keys)} columns would count every row {2 ** len(keys):,} times.",
                hint="Name the sets that you want: grouping_sets(...).",
            )
        sets = tuple(s for many in range(len(keys), -1, -1) for s in itertools.combinations(keys, many))
        return GroupingSets(pipeline, "cube", keys, sets, number)


def grouping_sets(pipeline: Pipeline, sets: Sequence[Any], number: str | None) -> GroupingSets:
    """The keys are all columns of the sets, in the order in which they are first named."""
    with step_at("grouping_sets"):
        given = [tuple(cast(Sequence[Any], s)) if isinstance(s, list | tuple) else (s,) for s in sets]
        if not any(given):
            raise UsageError(
                "grouping_sets wants sets of columns.", hint='Write grouping_sets(("a", "b"), ("a",), ()).'
            )
        named = [tuple(plain_names(s, "grouping_sets")) for s in given]
        keys = _keys(pipeline, list(dict.fromkeys(name for s in named for name in s)), "grouping_sets")
        known = [frozenset(s) for s in named]
        again = next((s for place, s in enumerate(named) if known[place] in known[:place]), None)
        if again is not None:
            raise UsageError(f"grouping_sets names the set ({', '.join(again)}) twice.", hint="Name it once.")
        return GroupingSets(pipeline, "grouping_sets", keys, tuple(named), number)


def _keys(pipeline: Pipeline, columns: Sequence[Any], step: str) -> tuple[str, ...]:
    names = plain_names(columns, step)
    if not names:
        raise UsageError(f"{step} wants at least one column.", hint="For all rows together use aggregate().")
    check_columns(pipeline.schema, names, step)
    twice = named_twice(names)
    if twice is not None:
        raise UsageError(f"{step} names the column '{twice}' twice.")
    return tuple(names)
