"""Statements of an aggregation of steps: partial rows before an exchange, the groups behind it, and different values counted in two steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from firesteel.plan.relation import Aggregate, Stream, Window
from firesteel.render import states
from firesteel.render.expressions.translator import Expressions
from firesteel.render.expressions.windows import function_text, over_text
from firesteel.render.states import State, Values, key_text, place_text, state_of


@dataclass(frozen=True, slots=True)
class Texts:
    """The statements. They know the columns of ``input`` as the relation does, those of partial rows by ``keys`` and ``kinds``.

    ``partial``: partial rows, of ``input``, the rows that are grouped; ``single``: the same with one for each row, empty if there is none.
    ``final``: the groups, of partial rows ``input0``; ``whole``: of the rows that are grouped, ``input0``. ``counted`` and ``added``: where
    different values are only counted, partial rows with numbers in the place of values, and the groups of these; else empty.
    """

    partial: str
    single: str
    final: str
    whole: str
    counted: str
    added: str
    keys: tuple[str, ...]
    kinds: dict[str, pa.DataType]
    """Of the columns of partial rows behind the keys."""
    values: tuple[str, ...]
    """Those that are values. A row has one of them at most."""
    merged_by: tuple[str, ...]
    """The columns of ``input`` by which rows are merged."""


def texts_of(relation: Aggregate) -> Texts:
    """Of an aggregation whose items are its groups, and behind them aggregates. Raises Unsupported."""
    made = _Grouping(relation)
    counts = bool(made.values) and all(one.counts for one in made.found if isinstance(one, Values))
    return Texts(
        made.partial("input"),
        made.single() if len(made.values) < 2 else "",
        made.groups("input0"),
        made.groups(f"({made.partial('input0')})"),
        made.counted() if counts else "",
        made.added() if counts else "",
        tuple(made.keys),
        made.kinds,
        tuple(made.values),
        tuple(made.merged_by),
    )


def one_per_key(relation: Stream, keys: Sequence[int], rows: str) -> str:
    """One of the ``rows`` that agree in these columns (by their places): the first one in the order of the others."""
    columns = list(relation.columns.items())
    texts = {name: key_text(name, kind) for place, (name, kind) in enumerate(columns) if place in keys}
    rest = [name for name, _ in columns if name not in texts]
    by = ", ".join(texts[columns[place][0]] for place in keys)
    named = ", ".join(f"{text} AS {name}" for name, text in texts.items())
    if not rest:
        return f"SELECT {named} FROM {rows} GROUP BY {by}"
    row = ", ".join(f"{name}: {name}" for name in rest)
    place = place_text((name, True) for name in rest)
    picked = f"SELECT {named}, arg_min_null({{{row}}}, {place}) AS r FROM {rows} GROUP BY {by}"
    return f"SELECT {', '.join(name if name in texts else f'r.{name}' for name, _ in columns)} FROM ({picked}) AS g"


def windowed(relation: Window, rows: str) -> str:
    """The rows, with the columns of the window after their own."""
    x, found, items = Expressions(), ["*"], list(relation.child.columns)
    keys = tuple(key_text(x.text(one), one.type) for one in relation.keys)
    for name, item in relation.items.items():
        call, made = item["windowFunction"], "{0}"
        is_sparks = call.get("mode") is not None  # as in Spark's plans; aggregates of our own have no mode
        if is_sparks or call.get("aggregateFunction") is None or call["aggregateFunction"].cls in ("First", "Last"):
            text = function_text(item, keys)
        else:
            text, made = states.windowed(call, x)
            text = f"{text} {over_text(item, keys)}"
        found.append(f"{text} AS {name}")
        items.append(made.format(name))
    return f"SELECT {', '.join(items)} FROM (SELECT {', '.join(found)} FROM {rows}) AS w"


KEPT = {
    "subtract": "CASE WHEN l > 0 AND r = 0 THEN 1 ELSE 0 END",
    "except_all": "greatest(l - r, 0)",
    "intersect": "least(l, r, 1)",
    "intersect_all": "least(l, r)",
}
"""How often a row is in the result of a set operation, by its numbers on the left and on the right."""


def counted_rows(relation: Stream, rows: str) -> str:
    """Each different one of the ``rows``, and its number."""
    texts = {name: key_text(name, kind) for name, kind in relation.columns.items()}
    items = ", ".join(f"{text} AS {name}" for name, text in texts.items())
    return f"SELECT {items}, count(*) AS n FROM {rows} GROUP BY {', '.join(texts.values())}"


def set_operation(relation: Stream, kind: str, left: str, right: str) -> str:
    """One of ``KEPT`` on counted rows. Nulls are equal, and so are NaN."""
    names = ", ".join(relation.columns)
    both = f"SELECT {names}, n AS l, 0 AS r FROM {left} UNION ALL SELECT {names}, 0, n FROM {right}"
    numbers = f"SELECT {names}, CAST(sum(l) AS BIGINT) AS l, CAST(sum(r) AS BIGINT) AS r FROM ({both}) GROUP BY {names}"
    return f"SELECT {names} FROM ({numbers}) AS g CROSS JOIN LATERAL (SELECT unnest(range({KEPT[kind]}))) AS t(time)"


class _Grouping:
    def __init__(self, relation: Aggregate) -> None:
        x = Expressions()
        self.keys = {f"k{n}": key_text(x.text(one), one.type) for n, one in enumerate(relation.groups)}
        calls = [one for one in relation.items.values() if one.cls == "AggregateExpression"]
        self.found: list[State | Values] = [state_of(call, x) for call in calls]
        self.values: dict[str, Values] = {}
        self.kinds: dict[str, pa.DataType] = {}
        self._columns: dict[str, tuple[str, str, str]] = {}
        """The texts of a state's column, by name: partial, of a single row, merged."""
        self._of = [self._state(one) if isinstance(one, State) else [self._value(one)] for one in self.found]
        asked = [
            one["aggregateFunction"]["children"]
            for one, found in zip(calls, self.found, strict=True)
            if isinstance(found, Values)
        ]
        self.merged_by = dict.fromkeys(one.id for one in (*relation.groups, *(of[0] for of in asked)))
        self.kinds |= {name: one.kind for name, one in self.values.items()}
        self.kinds |= {f"n{name}": pa.int64() for name in self.values}

    def _state(self, state: State) -> list[str]:
        """The names of its columns. Several aggregates may share them."""
        names: list[str] = []
        for kind, partial in zip(state.kinds, state.partial, strict=True):
            known = (n for n, (text, _, _) in self._columns.items() if text == partial and self.kinds[n] == kind)
            name = next(known, f"p{len(self._columns)}")
            names.append(name)
            self.kinds[name] = kind
            self._columns.setdefault(name, (partial, "", ""))
        for name, partial, single, merged in zip(names, state.partial, state.single, state.merged, strict=True):
            self._columns[name] = (partial, single, merged.format(*names))
        return names

    def _value(self, values: Values) -> str:
        same = (n for n, one in self.values.items() if (one.value, one.kind) == (values.value, values.kind))
        name = next(same, f"d{len(self.values)}")
        self.values[name] = values
        return name

    # --- parts --------------------------------------------------------------------------------------------------------

    def _given(self, rows: str) -> str:
        """The rows that are grouped, with their keys and values."""
        new = {**self.keys, **{name: one.value for name, one in self.values.items()}}
        items = ["*", *(f"{text} AS {name}" for name, text in new.items())]
        return f"(SELECT {', '.join(items)} FROM {rows})"

    def _by(self, *names: str) -> str:
        names = (*self.keys, *names)
        return f" GROUP BY {', '.join(names)}" if names else ""

    def _select(self, columns: dict[str, str], rows: str, tail: str) -> str:
        items = [*self.keys, *(f"{text} AS {name}" for name, text in columns.items())]
        return f"SELECT {', '.join(items)} FROM {rows} AS g{tail}"

    # --- statements ---------------------------------------------------------------------------------------------------

    def partial(self, rows: str) -> str:
        measures = {name: partial for name, (partial, _, _) in self._columns.items()}
        if len(self.values) < 2:
            numbers = {f"n{name}": f"CASE WHEN {name} IS NOT NULL THEN count(*) END" for name in self.values}
            values = {name: name for name in self.values}
            return self._select({**measures, **values, **numbers}, self._given(rows), self._by(*self.values))
        alone = " AND ".join(f"GROUPING({name}) = 1" for name in self.values)
        columns = {name: f"CASE WHEN {alone} THEN {text} END" for name, text in measures.items()}
        columns |= {name: name for name in self.values}
        columns |= {f"n{name}": f"CASE WHEN GROUPING({name}) = 0 THEN count(*) END" for name in self.values}
        sets = [f"({', '.join([*self.keys, *one])})" for one in ((), *((name,) for name in self.values))]
        there = " OR ".join([alone, *(f"GROUPING({n}) = 0 AND {n} IS NOT NULL" for n in self.values)])
        return self._select(columns, self._given(rows), f" GROUP BY GROUPING SETS ({', '.join(sets)}) HAVING {there}")

    def single(self) -> str:
        columns = {name: single for name, (_, single, _) in self._columns.items()}
        columns |= {name: name for name in self.values}
        columns |= {f"n{name}": f"CASE WHEN {name} IS NOT NULL THEN 1 END" for name in self.values}
        return self._select(columns, self._given("input"), "")

    def _merged(self, rows: str) -> str:
        """Partial rows with each value of a key once."""
        columns = {name: merged for name, (_, _, merged) in self._columns.items()}
        columns |= {name: name for name in self.values}
        columns |= {f"n{name}": f"CAST(sum(n{name}) AS BIGINT)" for name in self.values}
        return f"({self._select(columns, rows, self._by(*self.values))})"

    def groups(self, rows: str) -> str:
        """``rows``: partial ones, under their names."""
        if self.values:
            rows = self._ranked(self._merged(rows))
        out: dict[str, str] = {}
        for number, (one, names) in enumerate(zip(self.found, self._of, strict=True)):
            if isinstance(one, Values):
                (d,) = names
                text = one.finished.format(d, f"n{d}", f"u{d}", f"t{d}", f"x{d}")
            else:
                text = one.finished.format(*(self._columns[name][2] for name in names))
            out[f"a{number}"] = text
        return self._select(out, rows, self._by())

    def _ranked(self, rows: str) -> str:
        """With what is asked of the numbers of values beside each."""
        by = f"PARTITION BY {', '.join(self.keys)}" if self.keys else ""
        asked = [one.finished for one in self.found if isinstance(one, Values)]
        items = ["*"]
        for name in self.values:
            for place, text in (("{2}", f"sum(n{name}) OVER ({by} ORDER BY {name} NULLS LAST) AS u{name}"),
                                ("{3}", f"sum(n{name}) OVER ({by}) AS t{name}"),
                                ("{4}", f"max(n{name}) OVER ({by}) AS x{name}")):  # fmt: skip
                if any(place in one for one in asked):
                    items.append(text)
        return rows if len(items) == 1 else f"(SELECT {', '.join(items)} FROM {rows} AS r)"

    def counted(self) -> str:
        columns = {name: merged for name, (_, _, merged) in self._columns.items()}
        columns |= {name: f"count({name})" for name in self.values}
        columns |= {f"n{name}": "CAST(NULL AS BIGINT)" for name in self.values}
        return self._select(columns, self._merged("input0"), self._by())

    def added(self) -> str:
        out: dict[str, str] = {}
        for number, (one, names) in enumerate(zip(self.found, self._of, strict=True)):
            text = f"CAST(coalesce(sum({names[0]}), 0) AS BIGINT)"
            if isinstance(one, State):
                text = one.finished.format(*(self._columns[name][2] for name in names))
            out[f"a{number}"] = text
        return self._select(out, "input0", self._by())
