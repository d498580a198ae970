"""Columns over the rows of a step: resolved as Spark resolves them, and written for the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa

from firesteel.api.column import HINT, Column
from firesteel.compile.stream_graph import Selection
from firesteel.engine.convert import carrier
from firesteel.errors import EngineStop, UsageError
from firesteel.plan.analysis import Analysis, attribute, call, folded, inner_text, literal, unnamed
from firesteel.plan.coercion import VOID
from firesteel.plan.expr import Expr, Unsupported, attributes, conjuncts, replaced, walk
from firesteel.plan.expr import column as column_of
from firesteel.plan.hints import hints
from firesteel.plan.raising import any_raises, may_raise, sure
from firesteel.plan.types import arrow_type, engine_type, entry_of, is_interval, said, sparks_type
from firesteel.render.expressions.translator import Expressions
from firesteel.render.relations import all_of
from firesteel.task.expressions import plain_column
from firesteel.task.operators.relational import project_schema, unknown_column


@dataclass(frozen=True, slots=True)
class Resolved:
    """The columns of rows, by the names that the engine has for them: ``c0``, ``c1``, ... by their places.

    ``kinds``: their types in Spark. ``texts``: of those that come in another type."""

    schema: pa.Schema
    kinds: dict[str, Any]
    texts: dict[str, str]

    @classmethod
    def of(cls, schema: pa.Schema) -> Resolved:
        kinds: dict[str, Any] = {}
        texts: dict[str, str] = {}
        for place, field in enumerate(schema):
            name = f"c{place}"
            try:
                come = carrier(field.type)
                kinds[name] = kind = sparks_type(come)
                if not isinstance(kind, dict) and arrow_type(kind) != come:
                    texts[name] = f"CAST({name} AS {engine_type(kind)})"
            except (EngineStop, Unsupported):
                kinds[name] = {"type": "arrow", "arrow": field.type}
        return cls(schema, kinds, texts)

    def resolved(self, column: Column) -> Expr:
        """Raises UsageError."""

        def arrow(node: Expr) -> Expr | None:
            if node.cls != "Arrow":
                return None
            kind = project_schema(self.schema, [("x", node["expression"])])[0].field(0).type
            return column_of(f"c{len(self.schema)}", sparks_type(carrier(kind)))

        numbers: dict[int, int] = {}

        def numbered(node: Expr) -> Expr | None:
            """The same step has the same text in each job: variables count from the expression's first one."""
            if node.cls != "NamedLambdaVariable":
                return None
            number = numbers.setdefault(node["exprId"], len(numbers))
            return replace(node, fields={**node.fields, "exprId": number})

        return replaced(Analysis(self._column).resolved(replaced(column.tree, arrow)), numbered)

    def _column(self, name: str) -> Expr:
        """A column, or a field of a struct (``a.b``) where no column has that name. Raises UsageError."""
        first, *fields = [name] if self.schema.get_field_index(name) >= 0 else name.split(".")
        place = self.schema.get_field_index(first)
        if place < 0:
            raise unknown_column(self.schema, name, "the expression")
        found = column_of(f"c{place}", self.kinds[f"c{place}"])
        return reduce(lambda one, field: Analysis(self._column).part(one, literal(field)), fields, found)

    def name(self, column: Column) -> str:
        """Of a column that its user gave none: Spark's. Raises UsageError where that is not known."""
        if column.tree.cls == "Alias":
            return column.tree["name"]
        inner = column.tree
        while inner.cls == "UnresolvedCast":
            inner = inner["child"]
        if inner.cls == "Alias" or (inner.cls == "UnresolvedAttribute" and inner["name"] in self.schema.names):
            return inner["name"]
        if column.plain_name is not None:
            self.resolved(column)
            return column.plain_name.rpartition(".")[2]
        return self.part_name(column)

    def part_name(self, column: Column) -> str:
        """As Spark writes it in the name of a function of it. Raises UsageError where that is not known."""
        if unnamed(column.tree) or _hidden_names(column.tree, self.resolved(column)):
            raise UsageError(f"The column {column} has no name.", hint="Add alias(name).")
        return inner_text(self._spelt(column.tree))

    def _spelt(self, node: Expr) -> Expr:
        """The same, in the words that Spark has for the types of its parts."""
        if node.cls == "UnresolvedAttribute" and node["name"] not in self.schema.names:
            first, *fields = node["name"].split(".")
            parts = (literal(field) for field in fields)
            chain = reduce(lambda one, field: Expr("UnresolvedExtractValue", {"child": one, "extraction": field}), parts, attribute(first))  # fmt: skip
            return self._spelt(chain)
        if node.cls == "LambdaFunction":
            return node
        spelt = {name: self._spelt_field(field) for name, field in node.fields.items()}
        by_text = node.cls == "UnresolvedExtractValue" and node["extraction"].type == "string"
        if by_text and entry_of(self.resolved(Column(node["child"])).type) is not None:
            spelt["extraction"] = attribute(node["extraction"]["value"])
        if node.cls == "UnresolvedFunction" and node["name"] in ("+", "-"):
            cls, (a, b) = self.resolved(Column(node)).cls, spelt["arguments"]
            if cls in ("DateAdd", "DateSub"):
                days_first = self.resolved(Column(node["arguments"][0])).type != "date"
                return call("date_add" if cls == "DateAdd" else "date_sub", *((b, a) if days_first else (a, b)))
        return replace(node, fields=spelt)

    def _spelt_field(self, field: Any) -> Any:
        if isinstance(field, list):
            return [self._spelt_field(one) for one in field]
        return self._spelt(field) if isinstance(field, Expr) else field

    def type_of(self, column: Column) -> pa.DataType:
        return self._checked(column, self.resolved(column))

    def _checked(self, column: Column, made: Expr) -> pa.DataType:
        """The type of its values. Raises UsageError for what the engine does not compute as Spark does."""
        try:
            self.text(made)
            if is_interval(made.type):
                raise Unsupported(f"the type {said(made.type)} is not taken over")
            return pa.null() if made.type == VOID else arrow_type(made.type)
        except Unsupported as why:
            raise UsageError(f"{column} is not computed here: {why}.", hint=HINT) from None

    def text(self, made: Expr) -> str:
        """In the engine's SQL. Raises Unsupported."""
        made = folded(made)
        return f"CAST({self._expressions().text(made)} AS {engine_type(made.type)})"

    def _expressions(self) -> Expressions:
        def given(node: Expr) -> str | None:
            return self.texts.get(node.id) if node.cls == "AttributeReference" else None

        return Expressions(given)

    def selection(self, kind: str, pairs: Sequence[tuple[str, Any]]) -> Selection:
        """Columns of these names: Columns, or Arrow's expressions that are columns. Raises UsageError."""
        items: dict[str, tuple[str, frozenset[str]]] = {}
        fields: list[pa.Field] = []
        computed: dict[str, bool] = {}
        places = {name: place for place, name in enumerate(self.schema.names)}
        for name, one in pairs:
            if name in items:
                raise UsageError(f"The column name '{name}' is given twice.", hint="Give one of them another name.")
            source = one.plain_name if isinstance(one, Column) else plain_column(one, self.schema)
            if source is not None and source in places:
                fields.append(self._passed(self.schema.field(places[source])).with_name(name))
                items[name] = f"c{places[source]}", frozenset([source])
                continue
            made = self.resolved(one)
            fields.append(pa.field(name, self._checked(one, made)))
            items[name] = self.text(made), self._reads(made)
            computed[name] = may_raise(folded(made))
        raises = any(computed.values())
        spoken = [name for name, may in computed.items() if may == raises]
        words = ", ".join(f"'{name}' as {one}" for name, one in pairs if computed.get(name) == raises)
        told = f"compute the column {words}", frozenset(one for name in spoken for one in items[name][1])
        return Selection(kind, self.schema, items, pa.schema(fields), raises=raises, told=told)

    def chosen(self, kind: str, condition: Column) -> Selection:
        """The rows for which it is true. Raises UsageError."""
        made = self.resolved(condition)
        if made.type != "boolean":
            raise UsageError(
                f"A filter must be true or false, but {condition} is {said(made.type)}.",
                hint="Compare it with something.",
            )
        self._checked(condition, made)
        parts = conjuncts(folded(made))
        items = {name: (f"c{i}", frozenset([name])) for i, name in enumerate(self.schema.names)}
        for field in self.schema:
            self._passed(field)
        text = all_of(parts, self._expressions())
        found = tuple(hints(sure(parts), {name: field.name for name, field in self._sparks().items()}))
        reads = self._reads(made)
        told = f"evaluate {condition}", reads
        return Selection(kind, self.schema, items, self.schema, (text, reads), found, any_raises(parts), told)

    def _sparks(self) -> dict[str, pa.Field]:
        """The columns whose values come in Spark's types."""
        kinds = {f"c{i}": (self.kinds[f"c{i}"], field) for i, field in enumerate(self.schema)}
        return {
            name: f for name, (kind, f) in kinds.items() if not isinstance(kind, dict) and arrow_type(kind) == f.type
        }

    def _reads(self, made: Expr) -> frozenset[str]:
        return frozenset(self.schema.field(int(id[1:])).name for id in attributes(made))

    @staticmethod
    def _passed(field: pa.Field) -> pa.Field:
        """Raises UsageError for a type that the engine does not take."""
        try:
            carrier(field.type)
        except EngineStop:
            raise UsageError(
                f"A step with a Column cannot hand on the column '{field.name}' of type {field.type}.",
                hint="Leave it out before by select() or drop(), or cast it to another type.",
            ) from None
        return field


def _hidden_names(tree: Expr, made: Expr) -> bool:
    """Whether a function of Columns has parts that Spark names by their types."""
    written, resolved = (
        [one for top in walk(tree_) if top.cls == "LambdaFunction" for one in walk(top)] for tree_ in (tree, made)
    )
    days = any(one.cls in ("DateAdd", "DateSub") for one in resolved)
    return any(
        (one.cls == "UnresolvedFunction" and one["name"] in ("+", "-") and days)
        or (one.cls == "UnresolvedExtractValue" and one["extraction"].type == "string")
        or (one.cls == "UnresolvedAttribute" and "." in one["name"])
        for one in written
    )
