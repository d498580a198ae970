"""Queries as steps: of a stream of rows, of all rows of a run of keys, of files. Several that follow one another are one statement."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import pyarrow as pa

from firesteel.engine.connection import LEFT, SPILLED, EngineSettings, run
from firesteel.engine.convert import carried, carrier, conformed, is_plain, known, opaque
from firesteel.engine.files import FileRows, by_place, scan_of
from firesteel.errors import EngineStop, Stop
from firesteel.results.plain import one_chunk
from firesteel.task.executor.place import here
from firesteel.task.functions.user_code import complaint
from firesteel.task.program import Batches, Head, KeyedHead, KeyedOperator, Operator, TaskContext, UnitInput

INPUT = "input"
"""The name of the rows in the text; those of several inputs are ``input0``, ``input1``."""


@dataclass(frozen=True, slots=True)
class Added:
    """A column beside those of ``column``'s rows, made of it before they come to the engine. ``kind``: its type."""

    column: str
    kind: pa.DataType
    made: Callable[[Any, pa.DataType], Any]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows within a statement. ``query``: gives them, in columns of these ``names``, by the places in ``schema``; ``added``: names of more
    columns, behind those."""

    query: str
    names: tuple[str, ...]
    schema: pa.Schema
    added: tuple[str, ...] = ()

    def column(self, name: str) -> str:
        """Its name in the query."""
        return self.names[self.schema.get_field_index(name)]


class Statement:
    """A query that is put together, with what it reads.

    ``computes``: it does more than hand values on and compare them: then values come in the types that the engine computes with, of which some
    have none, and the engine must know each time. ``as_files``: the types are those, because the engine itself reads files.
    """

    def __init__(self, ctx: TaskContext, *, computes: bool, as_files: bool = False) -> None:
        self.ctx = ctx
        self._computes = computes
        self._carrier = carrier if computes or as_files else opaque
        self._streams: dict[str, tuple[pa.Schema, Batches]] = {}
        self._tables: dict[str, pa.Table] = {}
        self._files: set[str] = set()
        self._number = 0

    def name(self, prefix: str) -> str:
        self._number += 1
        return f"{prefix}{self._number}"

    def source(self, rows: Rows) -> tuple[str, str]:
        """The rows as FROM takes them, and their name there."""
        name = self.name("q")
        return f"({rows.query}) {name}({', '.join(rows.names + rows.added)})", name

    def stream(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch], added: Sequence[Added] = ()) -> Rows:
        """``schema``: of the columns that are read of them, whatever else is there."""
        name, to = self.name("stream"), self._carried(schema, added)
        self._streams[name] = to, self._entering(batches, schema, added, to)
        return _registered(name, schema, to)

    def table(self, table: pa.Table) -> Rows:
        """A table that may be read several times."""
        return self.kept(self.to_keep(table, ()), table.schema)

    def to_keep(self, table: pa.Table, added: Sequence[Added]) -> pa.Table:
        """The rows as :meth:`kept` takes them, for this statement and others of its kind."""
        to = self._carried(table.schema, added)
        return pa.Table.from_batches(self._entering(table.to_batches(), table.schema, added, to), to).combine_chunks()

    def kept(self, table: pa.Table, schema: pa.Schema) -> Rows:
        """``schema``: of the rows of which the table was made."""
        name = self.name("rows")
        self._tables[name] = table
        return _registered(name, schema, table.schema)

    @property
    def kind(self) -> str:
        """Names the types in which it takes values."""
        return self._carrier.__name__

    def side(self, name: str) -> None:
        """Makes a side input known, under its name and the names of its columns."""
        if name not in self._tables:
            table = self.ctx.side_inputs[name]
            self._tables[name] = known(table, carried(table.schema))

    def union(self, inputs: Sequence[Rows], schema: pa.Schema) -> Rows:
        """The rows of all, in the columns of ``schema``."""
        texts: list[str] = []
        for rows in inputs:
            text, name = self.source(rows)
            texts.append(f"SELECT {', '.join(f'{name}.{rows.column(one)}' for one in schema.names)} FROM {text}")
        return Rows(" UNION ALL ".join(texts), by_place(schema), schema)

    def files(self, files: Sequence[FileRows], schema: pa.Schema) -> Rows:
        """The rows of files, which the engine reads itself."""
        if not files:
            return self.stream(schema, ())
        self._files.update(one.path for one in files)
        names = by_place(schema)
        return Rows(scan_of(files, dict(zip(schema.names, names, strict=True))), names, schema)

    def run(self, rows: Rows) -> Batches:
        settings = settings_of(self.ctx)
        return run(rows.query, self._streams, self._tables, rows.schema, settings, files=self._files)

    def _carried(self, schema: pa.Schema, added: Sequence[Added]) -> pa.Schema:
        kinds = [self._carrier(kind) for kind in schema.types]
        kinds += [one.kind if self._computes and is_plain(one.kind) else opaque(one.kind) for one in added]
        return pa.schema([(f"c{place}", kind) for place, kind in enumerate(kinds)])

    def _entering(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, added: Sequence[Added], to: pa.Schema
    ) -> Batches:
        for batch in batches:
            chosen = batch if batch.schema.equals(schema) else conformed(batch.select(schema.names), schema)
            beside = (one.made(chosen.column(one.column), one.kind) for one in added)
            columns = [*chosen.columns, *map(one_chunk, beside)]
            given = pa.RecordBatch.from_arrays(columns, names=to.names)
            yield known(given, to) if self._computes else conformed(given, to)


def _registered(name: str, schema: pa.Schema, to: pa.Schema) -> Rows:
    names = tuple(to.names)
    return Rows(f"FROM {name}", names[: len(schema)], schema, names[len(schema) :])


def settings_of(ctx: TaskContext) -> EngineSettings:
    """The engine of a task: it may hold half of the task's memory, and spills into the worker's scratch directory."""
    memory = max(ctx.memory_budget // 2, 128 << 20)
    return EngineSettings(ctx.scratch / SPILLED, memory, ctx.engine, here().host)


# --- steps ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SqlFragment:
    """A query on the rows of the step before it, once for each subtask, also of no rows. ``sides``: inputs read whole.

    ``names``: of the columns of ``reads`` in the text; empty: ``c0``, ``c1``, ... by their places. What comes out is named by ``schema``, by place.
    """

    name: str
    sql: str
    reads: pa.Schema
    schema: pa.Schema
    sides: tuple[str, ...] = ()
    passed: Mapping[str, str] = field(default_factory=dict)
    """By column that of ``reads`` which it is, if rows of one value are made of rows of this value alone."""
    selective: bool = True
    """It is there to drop rows: what it leaves is likely not every key."""
    keys: tuple[pa.Table, ...] = ()
    """Rows of ``reads`` are left out before all else whose values of these columns are not in the table."""
    names: tuple[str, ...] = ()
    raises: bool = True
    """It computes what may raise an error of Spark's: then nothing that drops rows is one statement with it."""
    computes: bool = True
    """False: it hands values on, compares them, and computes with numbers alone."""
    told: tuple[str, frozenset[str]] | None = None
    """Of a step that Spark cannot compute instead: what it does to a row, in words, and the columns that it does this with."""
    unitwise: ClassVar[bool] = False

    def with_keys(self, keys: Sequence[pa.Table]) -> SqlFragment:
        """The same of rows alone whose values are in each of these tables."""
        return replace(self, keys=(*self.keys, *keys))

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        return Chain((self,)).apply(batches, ctx)

    def on(self, rows: Rows, statement: Statement) -> Rows:
        text, name = statement.source(rows)
        named = zip(self.reads.names, self.names or by_place(self.reads), strict=True)
        chosen = ", ".join(f"{name}.{rows.column(column)} AS {given}" for column, given in named)
        for table in self.keys:
            keys, other = statement.source(statement.table(table))
            pairs = zip(table.column_names, by_place(table.schema), strict=True)
            equal = " AND ".join(f"{name}.{rows.column(column)} = {other}.{key}" for column, key in pairs)
            text += f" SEMI JOIN {keys} ON {equal}"
        for side in self.sides:
            statement.side(side)
        query = f"WITH {INPUT} AS NOT MATERIALIZED (SELECT {chosen} FROM {text}) {self.sql}"
        return Rows(query, by_place(self.schema), self.schema)


@dataclass(frozen=True, slots=True)
class RowsOfRow(SqlFragment):
    """Makes each row of one row alone."""

    unitwise: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class SqlOfKeys:
    """A query on all rows of a run of keys, of one or several inputs. Keys empty: on all rows there are.

    The engine itself spills what does not fit in memory, so nothing is cut into units before.
    """

    name: str
    sql: str
    keys: tuple[tuple[str, ...], ...]
    reads: tuple[pa.Schema, ...]
    schema: pa.Schema
    passed: tuple[Mapping[str, str], ...] = ()
    """Per input, by column that of the input which it is, or is equal to, if rows of one value are made of its rows of this value
    alone."""
    names: tuple[tuple[str, ...], ...] = ()
    """Per input, as of :class:`SqlFragment`."""
    raises: bool = True
    computes: bool = True
    """As of :class:`SqlFragment`."""
    takes_all: ClassVar[bool] = True

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        return KeyedChain(self, ()).apply_unit(inputs, ctx)

    def of(self, inputs: Sequence[Rows], nbytes: Sequence[int], statement: Statement) -> Rows:
        texts: list[str] = []
        for i, (rows, reads) in enumerate(zip(inputs, self.reads, strict=True)):
            text, name = statement.source(rows)
            named = zip(reads.names, (self.names[i] if self.names else ()) or by_place(reads), strict=True)
            chosen = ", ".join(f"{name}.{rows.column(column)} AS {given}" for column, given in named)
            texts.append(f"{INPUT}{i} AS NOT MATERIALIZED (SELECT {chosen} FROM {text})")
        return Rows(f"WITH {', '.join(texts)} {self.sql}", by_place(self.schema), self.schema)


@dataclass(frozen=True, slots=True)
class Choice:
    """Columns of the rows before it, under other names. ``columns``: theirs by name."""

    columns: Mapping[str, str]
    schema: pa.Schema

    def on(self, rows: Rows, statement: Statement) -> Rows:
        text, name = statement.source(rows)
        chosen = ", ".join(f"{name}.{rows.column(self.columns[one.name])}" for one in self.schema)
        return Rows(f"SELECT {chosen} FROM {text}", by_place(self.schema), self.schema)


# --- several as one -------------------------------------------------------------------------------------------------


@runtime_checkable
class Query(Protocol):
    """An operator that is a query on the rows of the one before it. ``reads``: the schema of those."""

    @property
    def name(self) -> str: ...
    @property
    def reads(self) -> pa.Schema: ...
    @property
    def schema(self) -> pa.Schema: ...
    def on(self, rows: Rows, statement: Statement) -> Rows: ...


@runtime_checkable
class KeyedQuery(Protocol):
    """A keyed operator that is a query on its inputs."""

    @property
    def name(self) -> str: ...
    @property
    def keys(self) -> tuple[tuple[str, ...], ...]: ...
    @property
    def reads(self) -> tuple[pa.Schema, ...]: ...
    @property
    def schema(self) -> pa.Schema: ...
    def of(self, inputs: Sequence[Rows], nbytes: Sequence[int], statement: Statement) -> Rows:
        """``nbytes``: plain bytes of the inputs."""
        ...


@dataclass(frozen=True, slots=True)
class Chain:
    """Consecutive operators as one statement."""

    parts: tuple[Query | Choice, ...]
    unitwise: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return ", ".join(one.name for one in self.parts if not isinstance(one, Choice))

    @property
    def reads_files(self) -> bool:
        """It may read files instead of rows."""
        return not added_of(self.parts[0]) and (computes(self.parts) or _is_plain(self.parts))

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        seen = deque[pa.RecordBatch](maxlen=_SEEN)
        noted = _noted(batches, seen) if _told(self.parts) else batches
        return _of_steps(self.parts, self._of_rows(noted, ctx), ctx, seen)

    def apply_files(self, files: Sequence[FileRows], ctx: TaskContext) -> Batches:
        """The same of the rows of files, which the engine reads itself."""
        statement, read = (Statement(ctx, computes=computes(self.parts), as_files=True) for _ in range(2))
        rows = statement.files(files, self._reads)
        made = statement.run(through(self.parts, rows, statement))
        return _of_steps(self.parts, made, ctx, read.run(read.files(files, self._reads)))

    @property
    def _reads(self) -> pa.Schema:
        return cast(Query, self.parts[0]).reads

    def _of_rows(self, batches: Iterable[pa.RecordBatch], ctx: TaskContext) -> Batches:
        statement = Statement(ctx, computes=computes(self.parts))
        rows = statement.stream(self._reads, batches, added_of(self.parts[0]))
        return statement.run(through(self.parts, rows, statement))

    def raise_for(self, rows: pa.RecordBatch, ctx: TaskContext) -> None:
        """Raises EngineStop if these rows are enough for it."""
        deque(self._of_rows([rows], ctx), maxlen=0)


@dataclass(frozen=True, slots=True)
class KeyedChain:
    """A keyed operator and those behind it as one statement. The engine itself spills what does not fit in memory."""

    operator: KeyedQuery
    parts: tuple[Query | Choice, ...]
    takes_all: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return self.operator.name

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        return self.operator.keys

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        one = self.operator
        statement = Statement(ctx, computes=computes((one, *self.parts)))
        reads = zip(one.reads, inputs, added_of(one) or [()] * len(inputs), strict=True)
        rows = [statement.stream(schema, unit.batches(), added) for schema, unit, added in reads]
        made = one.of(rows, [unit.nbytes for unit in inputs], statement)
        return _of_steps(self.parts, statement.run(through(self.parts, made, statement)), ctx)


_SEEN = 4
"""Batches in which the row of an error is looked for: the engine may have read some after it."""


def _told(parts: Sequence[Any]) -> list[SqlFragment]:
    return [one for one in parts if getattr(one, "told", None)]


def _noted(batches: Batches, seen: deque[pa.RecordBatch]) -> Batches:
    for batch in batches:
        seen.append(batch)
        yield batch


def _of_steps(parts: Sequence[Any], made: Batches, ctx: TaskContext, rows: Iterable[pa.RecordBatch] = ()) -> Batches:
    """The same batches. A value that the engine does not compute is an error of the user's rows where Spark does not compute the steps
    instead. ``rows``: among which the one that has it may be."""
    told = _told(parts)
    try:
        yield from made
    except EngineStop as stop:
        if stop.kind is not Stop.VALUE or not told:
            raise
        one = next((one for one in told if one.raises), told[-1])
        why, hint = next(
            ((why, hint) for said, why, hint in _CONDITIONS if said in stop.message),
            (stop.message.removeprefix(LEFT), None),
        )
        from firesteel.task.expressions import first_bad, with_row  # an executor loads it for an error alone

        what, reads = cast(tuple[str, frozenset[str]], one.told)
        alone = partial(Chain(tuple(parts)).raise_for, ctx=ctx)
        found = (first_bad(batch, alone, EngineStop) for batch in rows if batch.num_rows)
        row = next((row for row, error in found if error is not None), None)
        raise complaint(one.name, f"cannot {what}: {with_row(why.rstrip('.'), row, reads)}", ctx, hint=hint) from None


_CONDITIONS = (
    (
        "division by zero",
        "DIVIDE_BY_ZERO, a division by zero",
        'Leave such rows out by a filter() before, or say what they are: F.when(F.col("b") != 0, F.col("a") / F.col("b")).',
    ),
    (
        "a text of another form",
        "CAST_INVALID_INPUT, a text that is not of the type",
        'Leave such rows out by a filter() before, or cast only the others: F.when(F.col("t").rlike("^[0-9]+$"), F.col("t").cast("bigint")).',
    ),
    (
        "onver",  # "could not convert", "Conversion Error"
        "ARITHMETIC_OVERFLOW, a value that does not fit its type",
        "Leave such rows out by a filter() before, or cast to a wider type before it: bigint, double, a decimal.",
    ),
    (
        "ut of ",  # "Out of Range Error", "out of range"
        "ARITHMETIC_OVERFLOW, a value that does not fit its type",
        "Leave such rows out by a filter() before, or cast to a wider type before it: bigint, double, a decimal.",
    ),
    (
        "place outside of an array",
        "INVALID_ARRAY_INDEX, a place outside of an array",
        'Take what may be there: F.get("a", F.lit(3)) gives null.',
    ),
)
"""Spark's conditions and advice, by the engine's words."""


def through(parts: Sequence[Query | Choice], rows: Rows, statement: Statement) -> Rows:
    for one in parts:
        rows = one.on(rows, statement)
    return rows


def added_of(part: Any) -> Any:
    """The columns that it needs beside those of its rows; of a keyed one per input."""
    return getattr(part, "added", ())


def computes(parts: Sequence[Any]) -> bool:
    return any(getattr(one, "computes", False) for one in parts)


def _is_plain(parts: Sequence[Any]) -> bool:
    """The engine computes with values of all their types as they are."""
    schemas = [schema for one in parts for schema in _schemas(one)]
    return all(is_plain(kind) for schema in schemas for kind in schema.types)


def _schemas(part: Any) -> Iterator[pa.Schema]:
    yield part.schema
    reads = getattr(part, "reads", ())
    yield from (reads,) if isinstance(reads, pa.Schema) else reads


def composed(head: Head, operators: Sequence[Operator], wanted: Sequence[str] = ()) -> tuple[Head, list[Operator]]:
    """The same, with consecutive queries as one. ``wanted``: columns to which the last ones may be cut; empty: all."""
    keyed = head.operator if isinstance(head, KeyedHead) and isinstance(head.operator, KeyedQuery) else None
    found: list[Any] = []
    run: list[Any] = [] if keyed is None else [keyed]
    for operator in operators:
        part = query_of(operator, run)
        if part is not None and may_follow(run, part):
            run.append(part)
            continue
        found += [tuple(run)] if run else []
        run = [operator] if isinstance(operator, Query) else []
        found += [] if run else [operator]
    if run and wanted and not getattr(run[-1], "raises", False):
        schema = pa.schema([run[-1].schema.field(name) for name in wanted])
        run.append(Choice({name: name for name in wanted}, schema))
    found += [tuple(run)] if run else []
    if keyed is not None:
        chained = cast(KeyedOperator, KeyedChain(keyed, found.pop(0)[1:]))
        head = replace(cast(KeyedHead, head), operator=chained)
    return head, [Chain(one) if isinstance(one, tuple) else one for one in found]


def query_of(operator: Any, before: Sequence[Any]) -> Query | Choice | None:
    if before and hasattr(operator, "chosen"):  # a projection
        chosen = operator.chosen(before[-1].schema)
        return None if chosen is None else Choice(chosen, operator.schema)
    return operator if isinstance(operator, Query) else None


def may_follow(before: Sequence[Any], part: Any) -> bool:
    """Whether the part may be one statement with these before it."""
    if not before or added_of(part) or getattr(before[-1], "raises", False):
        return False
    return isinstance(part, Choice) or are_one([*before, part])


def are_one(parts: Sequence[Any]) -> bool:
    """Whether all take values in the same types."""
    return not computes(parts) or _is_plain(parts)
