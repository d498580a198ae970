"""PySpark's Columns where a step takes names or expressions: translated where they mean the very same here, else refused by
``NotTranslated``, and ``api.connectors.spark_columns`` hands them to Spark's analyser.

Read is Spark's own tree of the column (Spark 4; a Column is only made beside a running Spark), never its text. What is
translated: what ``firesteel.functions`` computes with Spark's values for every row, aggregates of plain columns, directions of a sort.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from firesteel.api.column import Column
from firesteel.api.resolved import Resolved
from firesteel.api.steps.aggregates import agg
from firesteel.api.steps.aggregates.agg import AggregateCall
from firesteel.api.steps.common import NotTranslated
from firesteel.errors import UsageError, shortened
from firesteel.plan.analysis import attribute, call, literal
from firesteel.plan.expr import Expr, Unsupported, walk
from firesteel.plan.functions import FUNCTIONS
from firesteel.plan.types import decimal_of
from firesteel.task.operators.relational import unknown_column

_HINT = "Write it with firesteel.col and firesteel.lit; firesteel.functions has the functions."


def _percentile(column: str, fraction: float, frequency: int = 1) -> AggregateCall:
    if frequency != 1:
        raise TypeError
    return agg.percentile(column, fraction)


def _mode(column: str, deterministic: bool = False) -> AggregateCall:  # here it always is
    return agg.mode(column)


AGGREGATES: dict[str, Callable[..., AggregateCall]] = {
    "sum": agg.sum, "avg": agg.mean, "min": agg.min, "max": agg.max, "count": agg.count,
    "stddev": agg.stddev_samp, "std": agg.stddev_samp, "stddev_samp": agg.stddev_samp, "stddev_pop": agg.stddev_pop,
    "variance": agg.var_samp, "var_samp": agg.var_samp, "var_pop": agg.var_pop,
    "covar_samp": agg.covar_samp, "covar_pop": agg.covar_pop, "corr": agg.corr,
    "bool_and": agg.bool_and, "every": agg.bool_and, "bool_or": agg.bool_or, "some": agg.bool_or,
    "bit_and": agg.bit_and, "bit_or": agg.bit_or, "bit_xor": agg.bit_xor,
    "collect_list": agg.collect_list, "collect_set": agg.collect_set,
    "median": agg.median, "percentile": _percentile,
    "max_by": agg.max_by, "min_by": agg.min_by, "any_value": agg.any_value,
    "mode": _mode,
    "approx_count_distinct": agg.approx_count_distinct,
}  # fmt: skip
"""By the names that Spark's parser has for them: each of plain columns, and of constants behind these."""


def is_spark_column(value: Any) -> bool:
    """True for a PySpark Column, of a classic session or of Spark Connect."""
    return type(value).__name__ == "Column" and type(value).__module__.startswith("pyspark.sql.")


def plain_names(columns: Iterable[Any], step: str) -> list[Any]:
    """The columns, with the name in the place of each Column, ours or Spark's, which may be nothing else. Raises UsageError."""
    return [_plain_name(one, step) for one in columns]


def _plain_name(given: Any, step: str) -> Any:
    if is_spark_column(given):
        return _Tree(given, step, None).name()
    if not isinstance(given, Column):
        return given
    if given.plain_name is None:
        raise UsageError(
            f"The column {given} cannot be used in {step}: a plain one is wanted there.",
            hint="Make it a column first, by with_column().",
        )
    return given.plain_name


def by_name(given: Any, name_of: Callable[[Column], str]) -> Any:
    """A Column with a name in the place of its expression, which may have a direction; anything else as it is."""
    if not isinstance(given, Column):
        return given
    if given.tree.cls == "SortOrder":
        child = attribute(name_of(Column(given.tree["child"])))
        return Column(Expr("SortOrder", {**given.tree.fields, "child": child}))
    return Column(attribute(name_of(given)))


def ordering(column: Any, step: str) -> Any:
    """A name, or (name, ascending) where a Column, ours or Spark's, says its direction; anything else as it is. Raises UsageError for a place
    of nulls of its own."""
    if is_spark_column(column):
        return _Tree(column, step, None).ordering()
    if isinstance(column, Column) and column.tree.cls == "SortOrder":
        return _plain_name(Column(column.tree["child"]), step), column.tree["ascending"]
    return _plain_name(column, step)


def translated(column: Any, step: str, schema: pa.Schema) -> Column:
    """The same as a Column of ours. Raises UsageError, and NotTranslated for what Spark alone can compute for every row."""
    return _Tree(column, step, schema).column()


def aggregation(column: Any, step: str, schema: pa.Schema, output: str | None = None) -> tuple[str, AggregateCall]:
    """The aggregate of a Spark Column and its name: its alias, else ``output``, else the name that Spark gives it. Raises UsageError."""
    return _Tree(column, step, schema).aggregation(output)


class _Tree:
    """One Spark Column: what its nodes say."""

    def __init__(self, column: Any, step: str, schema: pa.Schema | None) -> None:
        self._column, self._step, self._schema = column, step, schema
        if not hasattr(column, "_jc"):
            raise UsageError(
                f"The PySpark column {shortened(str(column))} cannot be used in {step}: it is not of a classic session.",
                hint="Use one, not Spark Connect: SparkSession.builder.master(...).getOrCreate().",
            )
        try:
            self._node = column._jc.node()
        except Exception:  # py4j's complaint about an older Spark
            raise self._refused("only Columns of Spark 4 can be looked into") from None

    def _refused(self, why: str, hint: str = _HINT) -> UsageError:
        return NotTranslated(
            f"The PySpark column {shortened(str(self._column))} cannot be used in {self._step}: {why}.", hint=hint
        )

    def name(self) -> str:
        name = _attribute(self._node)
        if name is None:
            raise self._refused("a plain column is wanted there", "Make it a column first, by with_column().")
        return name

    def ordering(self) -> Any:
        if _kind(self._node) != "SortOrder":
            return self.name()
        ascending = _kind(self._node.sortDirection()) == "SortOrder$Ascending$"
        if (_kind(self._node.nullOrdering()) == "SortOrder$NullsFirst$") != ascending:
            raise self._refused("nulls come first here, and last in a descending column")
        name = _attribute(self._node.child())
        if name is None:
            raise self._refused("a plain column is wanted there", "Make it a column first, by with_column().")
        return name, ascending

    def column(self) -> Column:
        assert self._schema is not None
        plain = _attribute(self._unaliased()[1])
        if plain is not None:
            self._type(plain)  # else Spark says in its words that there is no such column
        try:
            found = Column(self._tree(self._node))
            if found.plain_name is None and not _is_computed(Resolved.of(self._schema), found):
                raise self._refused("some of its values may be computed by Spark alone")
            return found
        except NotTranslated:
            raise
        except Unsupported as why:
            raise self._refused(str(why)) from None
        except UsageError as refused:
            raise self._refused(refused.message.rstrip(".")) from None
        except RecursionError:
            raise self._refused(
                "it is nested too deeply", "Write several filters, or isin() for many values."
            ) from None

    def aggregation(self, output: str | None) -> tuple[str, AggregateCall]:
        alias, node = self._unaliased()
        function = str(node.functionName()) if _kind(node) == "UnresolvedFunction" else ""
        if function not in AGGREGATES or node.isUserDefinedFunction():
            raise self._refused(f"it is none of {', '.join(AGGREGATES)} and count_distinct", _HINT_AGGREGATE)
        arguments, distinct = _items(node.arguments()), bool(node.isDistinct())
        if function == "count" and not distinct and len(arguments) == 1 and _counted_rows(arguments[0]):
            return alias or output or f"count({_counted_rows(arguments[0])})", agg.count()
        columns = [name for name in map(_attribute, arguments) if name is not None]
        constants = [_constant_of(argument) for argument in arguments[len(columns) :]]
        if not columns or None in constants or (distinct and (function != "count" or len(columns) != 1)):
            raise self._refused("it is not an aggregate of plain columns", _HINT_AGGREGATE)
        for column in columns:
            type_ = self._type(column)
            if function in ("sum", "avg") and not (pa.types.is_integer(type_) or pa.types.is_floating(type_)):
                raise self._refused(
                    f"'{column}' is {type_}, of which the result has another type here", _HINT_AGGREGATE
                )
        spoken = f"count(DISTINCT {columns[0]})" if distinct else f"{function}({', '.join(columns)})"
        if constants and not (alias or output):
            raise self._refused("it has no name", "Add alias(name).")
        try:
            call = agg.count_distinct(columns[0]) if distinct else AGGREGATES[function](*columns, *constants)
        except TypeError:
            raise self._refused("it has other arguments than the aggregate here", _HINT_AGGREGATE) from None
        return alias or output or spoken, call

    def _unaliased(self) -> tuple[str | None, Any]:
        if _kind(self._node) != "Alias":
            return None, self._node
        names = _items(self._node.name())
        if len(names) != 1:
            raise self._refused("it has several names")
        return names[0], self._node.child()

    def _type(self, name: str) -> pa.DataType:
        assert self._schema is not None
        if self._schema.get_field_index(name) < 0:
            raise unknown_column(self._schema, name, self._step)
        return self._schema.field(name).type

    # --- expressions ------------------------------------------------------------------------------------------------

    def _tree(self, node: Any) -> Expr:
        """The same, of what gives Spark's values for all rows."""
        name = _attribute(node)
        if name is not None:
            self._type(name)
            return attribute(name)
        kind = _kind(node)
        if kind == "Alias" and node is self._node:
            alias, inner = self._unaliased()
            return Expr("Alias", {"child": self._tree(inner), "name": alias})
        value = _literal(node)
        if value is not None or (kind == "Literal" and not node.dataType().isDefined() and node.value() is None):
            return literal(value)
        if not _is_ansi():
            raise self._refused("Spark is not in its ANSI mode")
        if kind == "Cast" and not node.evalMode().isDefined():
            return Expr("UnresolvedCast", {"child": self._tree(node.child())}, json.loads(node.dataType().json()))
        if kind == "UnresolvedExtractValue":
            fields = {"child": self._tree(node.child()), "extraction": self._tree(node.extraction())}
            return Expr("UnresolvedExtractValue", fields)
        if kind != "UnresolvedFunction" or node.isUserDefinedFunction() or node.isDistinct():
            raise self._refused(f"{_described(node)} is not translated")
        function = str(node.functionName()).lower()
        if function not in FUNCTIONS:
            raise self._refused(f"its '{function}' is not translated")
        return call(function, *map(self._tree, _items(node.arguments())))


_ERRORS = ("division by zero", "a place outside of an array", "the place 0 of an array")
"""What ends a statement in an error of Spark's, too."""
_WRAPPED = frozenset(
    ["DateAdd", "DateSub", "AddMonths", "DateFromUnixDate", "MakeDate", "NextDay", "LastDay", "TruncDate"]
)
"""Of days beyond the engine's Spark may have a value."""


def _is_computed(resolved: Resolved, column: Column) -> bool:
    """The engine has Spark's value, or Spark an error, for every row."""
    made = resolved.resolved(column)
    text = resolved.text(made)
    for error in _ERRORS:
        text = text.replace(f"left to Spark: {error}", "")
    wide = (
        one
        for one in walk(made)
        if (decimal_of(one.type) or (0,))[0] == 38 and one.cls not in ("AttributeReference", "Literal")
    )
    parts = ("left to Spark", "fs_", "decimal_division")
    return (
        not any(part in text for part in parts)
        and next(wide, None) is None
        and not any(one.cls in _WRAPPED for one in walk(made))
    )


_HINT_AGGREGATE = "Write it with firesteel.agg: aggregate(total=agg.sum(...)). agg.__all__ lists the aggregates."


def _is_ansi() -> bool:
    """True where Spark means by an expression what ours mean: not without its ANSI mode."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    return session is not None and session.conf.get("spark.sql.ansi.enabled") == "true"


def _kind(node: Any) -> str:
    return str(node.getClass().getName()).rpartition(".")[2]


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(i) for i in range(sequence.size())]


def _attribute(node: Any) -> str | None:
    """The column that the node merely names."""
    if _kind(node) != "UnresolvedAttribute" or node.planId().isDefined() or node.isMetadataColumn():
        return None
    parts = _items(node.nameParts())
    return str(parts[0]) if len(parts) == 1 else None


def _literal(node: Any) -> int | float | str | bool | None:
    """A constant that means the same here; None for any other node, and for other constants."""
    value = node.value() if _kind(node) == "Literal" and not node.dataType().isDefined() else None
    return value if isinstance(value, int | float | str) else None


def _constant_of(node: Any) -> int | float | bool | None:
    """The constant argument of an aggregate; None for anything else."""
    value = node.value() if _kind(node) == "Literal" and not node.dataType().isDefined() else None
    return value if isinstance(value, int | float) else None


def _described(node: Any) -> str:
    """A node in a user's words."""
    kind = _kind(node)
    if kind == "UnresolvedAttribute":
        return (
            f"the name {'.'.join(map(str, _items(node.nameParts())))}, a field of a struct or a column of a DataFrame"
        )
    if kind == "ExpressionColumnNode":
        return "a column of a DataFrame (F.col(name) names one of this stream) or a function of Python"
    return "a constant" if kind == "Literal" else f"'{node.functionName()}'" if kind == "UnresolvedFunction" else kind


def _counted_rows(node: Any) -> str | None:
    """The argument as Spark writes it if count() is of all rows; None if it is of a column's values."""
    if _kind(node) == "UnresolvedStar":
        return "1"
    value = _literal(node)
    return str(value).lower() if isinstance(value, int) else None
