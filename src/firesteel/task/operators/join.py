"""Joins as queries: by equal columns, by other conditions, and by the nearest time. The inputs are two co-partitioned ones, or a stream and a
side that every task has whole.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from firesteel.engine.bands import KINDS, LEFT, RIGHT, Band, banded
from firesteel.engine.convert import not_taken, opaque
from firesteel.engine.files import by_place
from firesteel.errors import UsageError
from firesteel.model import build_memory
from firesteel.results.keys import KeyTypeError, common_key_type, normal_type, normalise_key
from firesteel.task.operators.fragments import Added, Chain, KeyedChain, Rows, Statement
from firesteel.task.operators.relational import check_columns, order_type
from firesteel.task.program import Batches, TaskContext, UnitInput

HOWS = ("inner", "left", "right", "full", "semi", "anti")
OPERATORS = ("<", "<=", ">", ">=", "!=")
TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "!=": "!="}
"""By operator, the one that holds with its sides changed."""
DIRECTIONS = ("backward", "forward", "nearest")
_SPELLINGS = {
    "inner": "inner", "left": "left", "leftouter": "left", "right": "right", "rightouter": "right",
    "full": "full", "outer": "full", "fullouter": "full", "semi": "semi", "leftsemi": "semi", "anti": "anti", "leftanti": "anti",
}  # fmt: skip


def join_kind(how: str) -> str:
    """One of ``HOWS`` for any of Spark's and pyarrow's spellings. Raises UsageError."""
    kind = _SPELLINGS.get(how.lower().replace("_", "").replace(" ", ""))
    if kind is None:
        raise UsageError(f"There is no join of kind '{how}'.", hint=f"There are {', '.join(HOWS)}.")
    return kind


def join_schema(  # noqa: PLR0917
    left: pa.Schema,
    right: pa.Schema,
    left_keys: Sequence[str],
    right_keys: Sequence[str],
    how: str,
    suffix: str = "_right",
) -> pa.Schema:
    """All left columns, then the right ones without the right keys, a clashing one under a name of :func:`right_names`; semi,
    anti: the left ones.

    In right and full joins the left key columns hold the right key where there is no left row; when the two differ
    in type they take the type that holds both. No keys: rows are compared in another way. Raises UsageError for unknown or
    incomparable keys.
    """
    kind = join_kind(how)
    _check_keys(left, right, left_keys, right_keys)
    _check_types(left, right)
    if kind in ("semi", "anti"):
        return left
    left_nullable, right_nullable = kind in ("right", "full"), kind in ("left", "full")
    pairs = dict(zip(left_keys, right_keys, strict=True))
    fields = []
    for field in left:
        if field.name in pairs and left_nullable:
            fields.append(pa.field(field.name, _common_type(field.type, right.field(pairs[field.name]).type), True))
        else:
            fields.append(field.with_nullable(field.nullable or left_nullable))
    names = right_names(left, right, right_keys, suffix)
    for field, name in zip(payload(right, right_keys), names, strict=True):
        fields.append(field.with_name(name).with_nullable(field.nullable or right_nullable))
    return pa.schema(fields)


def right_names(left: pa.Schema, right: pa.Schema, right_keys: Sequence[str], suffix: str) -> list[str]:
    """The names of the right side's columns in the join's result, all different: its own where the left side has none such,
    else with ``suffix``; where that is taken too, by a column of either side, with ``suffix`` and the first free number
    from 2 on."""
    own = [field.name for field in payload(right, right_keys)]
    taken = {*left.names, *(name for name in own if left.get_field_index(name) < 0)}
    names: list[str] = []
    for name in own:
        if left.get_field_index(name) >= 0:
            tried = (
                f"{name}{suffix}{number}" for number in itertools.chain([""], (f"_{n}" for n in itertools.count(2)))
            )
            name = next(new for new in tried if new not in taken)  # noqa: PLW2901
            taken.add(name)
        names.append(name)
    return names


def payload(right: pa.Schema, right_keys: Sequence[str]) -> list[pa.Field]:
    """The right side's columns in the join's result."""
    keys = set(right_keys)
    return [field for field in right if field.name not in keys]


def _check_keys(left: pa.Schema, right: pa.Schema, left_keys: Sequence[str], right_keys: Sequence[str]) -> None:
    if len(left_keys) != len(right_keys):
        raise UsageError(
            f"A join needs as many keys on the left ({len(left_keys)}) as on the right ({len(right_keys)})."
        )
    check_columns(left, left_keys, "the left join keys")
    check_columns(right, right_keys, "the right join keys")
    for a, b in zip(left_keys, right_keys, strict=True):
        try:
            common_key_type(left.field(a).type, right.field(b).type)
        except KeyTypeError as error:
            raise UsageError(f"The join keys '{a}' and '{b}' do not fit. {error.message}", hint=error.hint) from None


def _check_types(*schemas: pa.Schema) -> None:
    refused = next(filter(None, (not_taken(schema, opaque) for schema in schemas)), None)
    if refused is not None:
        raise UsageError(
            f"A join cannot hand on the column '{refused.name}' of type {refused.type}.",
            hint="Leave the column out before the join, or cast it to another type.",
        )


def _common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """A type that holds the keys of both sides."""
    if left == right:
        return left
    left, right = _plain(left), _plain(right)
    if left == right or pa.types.is_nested(left) or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    if pa.types.is_timestamp(left):
        return pa.timestamp(_finer(left.unit, right.unit), left.tz)
    if pa.types.is_duration(left):
        return pa.duration(_finer(left.unit, right.unit))
    return common_key_type(left, right)


def _plain(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def _finer(unit: str, other: str) -> str:
    return max(unit, other, key=("s", "ms", "us", "ns").index)


def divisible_sides(how: str) -> tuple[bool, bool]:
    """Of each side: True if its rows of one key may be joined in parts, each with all rows of the other side that have it: not where a row of
    the other side is given once only, or given without a match, whatever parts it meets."""
    return how in KINDS[RIGHT], how in KINDS[LEFT]


def divisibility_of(how: str) -> list[tuple[bool, str]]:
    """:func:`divisible_sides`, each with the reason in words where it may not be divided."""
    may = divisible_sides(how)
    sides = [side for side, each in zip(("left", "right"), may, strict=True) if each]
    why = f"{f'only {sides[0]}' if sides else 'no'} rows may be in a join of kind '{how}'"
    return [(each, "" if each else why) for each in may]


@dataclass(frozen=True, slots=True)
class Comparison:
    """``left operator right``, of a column on each side. Values compare as they sort: NaN is the largest number, null is never compared."""

    left: str
    operator: str
    right: str

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


def check_comparison(left: pa.Schema, right: pa.Schema, one: Comparison) -> None:
    """Raises UsageError for columns that are not there or have no common order."""
    check_columns(left, [one.left], "the left side of the join")
    check_columns(right, [one.right], "the right side of the join")
    types = left.field(one.left).type, right.field(one.right).type
    for name, type_ in zip((one.left, one.right), types, strict=True):
        if order_type(type_) is None:
            raise UsageError(f"'{one}' cannot be told: '{name}' is {type_}, which has no order.")
    try:
        common = common_key_type(*types)
    except KeyTypeError as error:
        raise UsageError(f"'{one}' cannot be told. {error.message}", hint=error.hint) from None
    if pa.types.is_decimal256(common):
        raise UsageError(
            f"'{one}' cannot be told: {types[0]} and {types[1]} need more than 38 digits together.",
            hint="Cast one of the two columns to a type of fewer digits.",
        )


@dataclass(frozen=True, slots=True)
class Nearest:
    """Of the right rows that fit, a left row gets the one with the nearest time.

    ``on``: the columns of times; ``distance``: the largest one that counts, in units of the type of :func:`check_times` (None: any);
    ``exact``: equal times count. Of equal times, the same row is taken whatever the order in which rows come.
    """

    on: tuple[str, str]
    direction: str
    distance: Any = None
    exact: bool = True

    def is_float(self, left: pa.Schema) -> bool:
        return pa.types.is_floating(normal_type(left.field(self.on[0]).type))


def check_times(left: pa.Schema, right: pa.Schema, on: tuple[str, str]) -> pa.DataType:
    """The type as which the two columns are compared. Raises UsageError if they have no common type, or the type has no distance."""
    check_columns(left, on[:1], "the time of the left side")
    check_columns(right, on[1:], "the time of the right side")
    types = [schema.field(name).type for schema, name in zip((left, right), on, strict=True)]
    hint = "Cast one of the two columns to the other's type."
    try:
        common = common_key_type(*types)
    except KeyTypeError as error:
        raise UsageError(f"The times '{on[0]}' and '{on[1]}' do not fit. {error.message}", hint=error.hint) from None
    measured = any(is_such(common) for is_such in (*_WHOLE_TIMES, pa.types.is_floating))
    if not measured or any(pa.types.is_uint64(type_) or pa.types.is_null(type_) for type_ in (common, *types)):
        said = " and ".join(dict.fromkeys(map(str, types)))
        if measured or len(set(types)) == 1:
            hint = "Cast the column: times are timestamps, dates, durations, integers or floats."
        raise UsageError(f"Nothing is near in a column of {said}.", hint=hint)
    return common


_WHOLE_TIMES = (pa.types.is_integer, pa.types.is_timestamp, pa.types.is_date32, pa.types.is_duration)


def _is_whole(left: pa.DataType, right: pa.DataType) -> bool:
    """Values of both are numbers of 64 bits in the canonical form of their common type."""
    common = common_key_type(left, right)
    unsigned = any(pa.types.is_uint64(normal_type(one)) for one in (left, right, common))
    return not unsigned and any(is_such(common) for is_such in _WHOLE_TIMES)


def build_sides(how: str) -> tuple[int, ...]:
    """Returns the inputs of a join of this kind that may be given whole to every task: those of which no row without a match comes out."""
    divisible = divisible_sides(how)
    return tuple(side for side in (LEFT, RIGHT) if divisible[1 - side])


@dataclass(frozen=True, slots=True)
class HashJoin:
    """Joins two co-partitioned inputs: rows of equal keys (none: all) that meet all ``conditions``; ``nearest``: one of these.

    ``schema`` is what :func:`join_schema` gives. SQL's nulls never match; NaN matches NaN, -0.0 matches 0.0.
    """

    name: str
    how: str
    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    left_schema: pa.Schema
    right_schema: pa.Schema
    schema: pa.Schema
    conditions: tuple[Comparison, ...] = ()
    nearest: Nearest | None = None
    takes_all: ClassVar[bool] = True

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        return (self.left_keys, self.right_keys)

    @property
    def divided_as(self) -> str:
        """The kind of join whose sides may be divided among tasks, or given whole to each, as this one's."""
        return self.how if self.nearest is None else "left"

    @property
    def compared(self) -> list[tuple[str, str]]:
        """The left and right columns that say which rows go together: keys, those of conditions, times."""
        keys = zip(self.left_keys, self.right_keys, strict=True)
        times = [] if self.nearest is None else [self.nearest.on]
        return [*keys, *((one.left, one.right) for one in self.conditions), *times]

    @property
    def payload(self) -> list[pa.Field]:
        """The right side's columns that come out. A time of a common name comes out once, from the left."""
        once = self.right_keys
        if self.nearest is not None and self.nearest.on[0] == self.nearest.on[1]:
            once = (*once, self.nearest.on[1])
        return payload(self.right_schema, once)

    @property
    def reads(self) -> tuple[pa.Schema, ...]:
        return (self.left_schema, self.right_schema)

    @property
    def added(self) -> tuple[tuple[Added, ...], ...]:
        made = [(pair, to, made) for *pair, to, made in _pairs(self) if made is not None]
        return tuple(tuple(Added(pair[side], to, made) for pair, to, made in made) for side in (LEFT, RIGHT))

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        return KeyedChain(self, ()).apply_unit(inputs, ctx)

    def of(self, inputs: Sequence[Rows], nbytes: Sequence[int], statement: Statement) -> Rows:
        left, right = inputs
        return joined(self, left, right, statement, RIGHT if nbytes[LEFT] < nbytes[RIGHT] else LEFT)


@dataclass(frozen=True, slots=True)
class BroadcastJoin:
    """Joins its stream with the join's input ``build``, which it holds, or which is the build side or side input ``side`` of the task: the
    stream needs no exchange.

    A build side beyond the task's memory is a stream, too: the engine spills what it cannot hold.
    """

    join: HashJoin
    build: int
    side: str | pa.Table
    unitwise: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.build not in build_sides(self.join.divided_as):
            raise ValueError(
                f"A {self.join.how} join cannot be done with input {self.build} given whole to every task."
            )

    @property
    def name(self) -> str:
        return self.join.name

    @property
    def reads(self) -> pa.Schema:
        return self.join.reads[1 - self.build]

    @property
    def schema(self) -> pa.Schema:
        return self.join.schema

    @property
    def added(self) -> tuple[Added, ...]:
        return self.join.added[1 - self.build]

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        return Chain((self,)).apply(batches, ctx)

    def on(self, rows: Rows, statement: Statement) -> Rows:
        built = _side(self.side, self.join.reads[self.build], self.join.added[self.build], statement)
        left, right = (rows, built) if self.build == RIGHT else (built, rows)
        return joined(self.join, left, right, statement, 1 - self.build)


def only_of(keys: pa.Table, names: Sequence[str], schema: pa.Schema, kind: str = "semi") -> BroadcastJoin:
    """Leaves the rows of a stream whose values in the columns ``names`` a row of ``keys`` has; ``kind`` "anti": the others. Raises UsageError for
    rows that a join cannot hand on."""
    columns = tuple(keys.schema.names)
    join_schema(schema, keys.schema, names, columns, kind)
    join = HashJoin(f"{kind} join", kind, tuple(names), columns, schema, keys.schema, schema)
    return BroadcastJoin(join, RIGHT, keys)


def is_held(side: str, ctx: TaskContext) -> bool:
    """Returns whether the task can hold the build side, beside the others."""
    held = [build_memory.held_bytes(one.unit.nbytes, one.rows) for one in ctx.builds.values()]
    return dict(zip(ctx.builds, build_memory.that_fit(held, ctx.memory_budget), strict=True))[side]


def _side(side: str | pa.Table, schema: pa.Schema, added: Sequence[Added], statement: Statement) -> Rows:
    """The rows of a build side, as one table for all workers of the executor where it can be held."""
    held = statement.ctx.side_inputs.get(side) if isinstance(side, str) else side
    if held is not None:
        return statement.kept(statement.to_keep(held, added), schema)
    assert isinstance(side, str)
    build = statement.ctx.builds[side]
    if not is_held(side, statement.ctx):
        return statement.stream(schema, build.unit.batches(), added)
    words = [statement.kind, schema.to_string(), *((one.column, str(one.kind)) for one in added)]
    name = f"{build.identity}-{hashlib.blake2b(repr(words).encode(), digest_size=8).hexdigest()}"

    def make() -> pa.Table:
        return statement.to_keep(build.unit.table(), added)

    return statement.kept(statement.ctx.shared.get_all({name: make})[name], schema)


# --- the query ------------------------------------------------------------------------------------------------------

_SQL = {
    "inner": ("JOIN", "JOIN"),
    "left": ("LEFT JOIN", "RIGHT JOIN"),
    "right": ("RIGHT JOIN", "LEFT JOIN"),
    "full": ("FULL JOIN", "FULL JOIN"),
    "semi": ("SEMI JOIN", ""),
    "anti": ("ANTI JOIN", ""),
}
"""By kind, the words between left and right, and between right and left."""


def joined(join: HashJoin, left: Rows, right: Rows, statement: Statement, stream: int) -> Rows:
    """The rows of a join. ``stream``: the side whose rows the engine does not hold."""
    if join.nearest is not None:
        return _of_nearest(join, join.nearest, left, right, statement)
    (left_text, ours), (right_text, theirs) = statement.source(left), statement.source(right)
    values = _values(join, left, ours, right, theirs)
    operators = [*("=" for _ in join.left_keys), *(one.operator for one in join.conditions)]
    holds = [f"{a} {operator} {b}" for operator, (a, b) in zip(operators, values, strict=False)] or ["true"]
    either = dict(zip((a for a, _ in _of_two_types(join)), values[len(operators) :], strict=False))
    pairs = dict(zip(join.left_keys, join.right_keys, strict=True)) if join.how in ("right", "full") else {}
    items: list[str] = []
    for name in join.left_schema.names:
        own = f"{ours}.{left.column(name)}"
        if name in either:
            own = f"coalesce({', '.join(either[name])})"
        elif name in pairs:
            own = f"coalesce({own}, {theirs}.{right.column(pairs[name])})"
        items.append(own)
    if join.how in ("semi", "anti"):
        stream = LEFT
    else:
        items += [f"{theirs}.{right.column(field.name)}" for field in join.payload]
    clauses, texts, interval = "", [left_text, right_text], _interval(join)
    if interval is not None:
        side, (low, high) = interval[0], values[-2:]
        band = Band(low[1 - side], low[side], high[side], side)
        clauses, texts, same = banded((left_text, right_text), (ours, theirs), band, statement.name)
        holds.append(same)
    query = f"{clauses} SELECT {', '.join(items)} FROM {texts[stream]} {_SQL[join.how][stream]} {texts[1 - stream]} ON {' AND '.join(holds)}"
    return Rows(query, by_place(join.schema), join.schema)


def _of_nearest(join: HashJoin, nearest: Nearest, left: Rows, right: Rows, statement: Statement) -> Rows:
    """One as-of join of the engine for each direction. Each time is compared together with a hash of its row, so that equal times have an order."""
    (left_text, ours), (right_text, rows) = statement.source(left), statement.source(right)
    held = statement.name("held")
    *_, (_, time) = _values(join, left, ours, right, rows)
    tie = f"hash({', '.join(f'{rows}.{name}' for name in right.names)})"
    text = f"SELECT {rows}.*, {_place(time, tie)} AS place FROM {right_text}"
    kind = "DOUBLE" if nearest.is_float(join.left_schema) else "HUGEINT"
    tables, cases, distances = [left_text], list[tuple[str, str]](), list[str]()
    for backward in (True, False):
        if nearest.direction == ("forward" if backward else "backward"):
            continue
        theirs = statement.name("near")
        *equal, (mine, other) = _values(join, left, ours, right, theirs)
        place = _place(mine, "18446744073709551615" if backward == nearest.exact else "0")
        operator = f"{'>' if backward else '<'}{'=' if nearest.exact else ''}"
        holds = [*(f"{a} = {b}" for a, b in equal), f"{place} {operator} {theirs}.place"]
        tables.append(f"ASOF LEFT JOIN {held} {theirs} ON {' AND '.join(holds)}")
        distances.append(_distance(*((other, mine) if backward else (mine, other)), kind))
        fits = f"{theirs}.place IS NOT NULL"
        if nearest.distance is not None:
            fits += f" AND {distances[-1]} <= '{nearest.distance}'::{kind}"
        cases.append((fits, theirs))
    if len(cases) == 2:
        gone, ahead = distances
        cases[0] = (f"{cases[0][0]} AND {gone} <= coalesce({ahead}, {gone})", cases[0][1])
    items = [f"{ours}.{left.column(name)}" for name in join.left_schema.names]
    for field in join.payload:
        found = (f"WHEN {fits} THEN {theirs}.{right.column(field.name)}" for fits, theirs in cases)
        items.append(f"CASE {' '.join(found)} END")
    query = f"WITH {held} AS {'' if len(cases) == 2 else 'NOT '}MATERIALIZED ({text}) SELECT {', '.join(items)} FROM {' '.join(tables)}"
    if join.how == "inner":
        query += f" WHERE {' OR '.join(f'({fits})' for fits, _ in cases)}"
    return Rows(query, by_place(join.schema), join.schema)


def _place(time: str, tie: str) -> str:
    return f"CASE WHEN {time} IS NOT NULL THEN {{'time': {time}, 'tie': {tie}::UBIGINT}} END"


def _distance(low: str, high: str, kind: str) -> str:
    """Exact for integers. For floats 0 between equal ones, infinity between NaN and numbers."""
    if kind == "HUGEINT":
        return f"({high}::HUGEINT - {low})"
    return (
        f"CASE WHEN {low} = {high} THEN 0 WHEN isnan({low}) OR isnan({high}) THEN 'inf'::DOUBLE ELSE {high} - {low} END"
    )


def _values(join: HashJoin, left: Rows, ours: str, right: Rows, theirs: str) -> list[tuple[str, str]]:
    """The pairs of :func:`_pairs` in a query."""
    added = zip((f"{ours}.{one}" for one in left.added), (f"{theirs}.{one}" for one in right.added), strict=True)
    return [
        (f"{ours}.{left.column(a)}", f"{theirs}.{right.column(b)}") if made is None else next(added)
        for a, b, _, made in _pairs(join)
    ]


def _pairs(join: HashJoin) -> Iterator[tuple[str, str, pa.DataType, Callable[[Any, pa.DataType], Any] | None]]:
    """The columns that are compared, those of :func:`_of_two_types`, and those of :func:`_interval`. With the type and the way in which both are
    made columns of their own before; None: the engine takes them as they are."""
    times = [] if join.nearest is None else [(join.nearest.on, join.nearest.is_float(join.left_schema))]
    for a, b in join.compared[: len(join.compared) - len(times)]:
        types = join.left_schema.field(a).type, join.right_schema.field(b).type
        yield a, b, common_key_type(*types), None if _alike(*types) else normalise_key
    for on, is_float in times:
        yield *on, pa.float64() if is_float else pa.int64(), _as_number
    for a, b in _of_two_types(join):
        yield a, b, join.schema.field(a).type, _cast
    for one in (_interval(join) or (RIGHT, ()))[1]:
        types = join.left_schema.field(one.left).type, join.right_schema.field(one.right).type
        yield one.left, one.right, pa.int64(), None if all(map(pa.types.is_integer, types)) else _as_number


def _interval(join: HashJoin) -> tuple[int, tuple[Comparison, Comparison]] | None:
    """The side whose rows are intervals of whole numbers in which a column of the other lies, and the conditions of its starts and ends."""
    for side in build_sides(join.how) if join.nearest is None else ():
        ends: dict[str, dict[str, Comparison]] = {}
        for one in join.conditions:
            point, operator = (one.left, one.operator) if side == RIGHT else (one.right, TURNED[one.operator])
            if _is_whole(join.left_schema.field(one.left).type, join.right_schema.field(one.right).type):
                ends.setdefault(point, {}).setdefault(operator[0], one)
        both = next((found for found in ends.values() if "<" in found and ">" in found), None)
        if both is not None:
            return side, (both[">"], both["<"])
    return None


def _of_two_types(join: HashJoin) -> list[tuple[str, str]]:
    """The pairs of keys that come out as one column, and have another type there on one side."""
    if join.how not in ("right", "full"):
        return []
    pairs = zip(join.left_keys, join.right_keys, strict=True)
    return [(a, b) for a, b in pairs if join.left_schema.field(a).type != join.right_schema.field(b).type]


def _as_number(column: Any, to: pa.DataType) -> Any:
    """A time as a number of its canonical form."""
    values = normalise_key(column)
    return values if values.type == to else values.view(pa.int32() if pa.types.is_date32(values.type) else to).cast(to)


def _cast(column: Any, to: pa.DataType) -> Any:
    return column.cast(to)


def _alike(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether values of these types compare in the engine as their keys do."""
    left, right = _stored(left), _stored(right)
    types = pa.types
    if types.is_integer(left) and types.is_integer(right):
        return types.is_uint64(left) == types.is_uint64(right)
    if types.is_decimal128(left) and types.is_decimal128(right):
        return left.scale == right.scale
    for is_such in (types.is_timestamp, types.is_duration):
        if is_such(left) and is_such(right):
            return left.unit == right.unit
    return any(all(any(is_such(one) for is_such in group) for one in (left, right)) for group in _ALIKE)


_ALIKE = (
    (pa.types.is_boolean,),
    (pa.types.is_float32, pa.types.is_float64),
    (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary),
    (pa.types.is_date32,),
)


def _stored(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _stored(kind.storage_type)
    return _stored(kind.value_type) if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind) else kind
