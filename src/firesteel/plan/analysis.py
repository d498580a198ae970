"""Expressions as users write them, resolved as Spark's analyser resolves them: columns, functions, implicit casts, types.

Not resolved yet are ``UnresolvedAttribute`` (``name``), ``UnresolvedFunction`` (``name``, ``arguments``), ``UnresolvedCast`` (``child``, and
the type), ``UnresolvedExtractValue`` (``child``, ``extraction``) and ``Alias`` (``child``, ``name``). ``Literal`` is as in Catalyst.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import count
from typing import Any

import pyarrow as pa

from firesteel.errors import UsageError, shortened
from firesteel.plan import coercion
from firesteel.plan.coercion import VOID, accepts, common, decimal, is_number
from firesteel.plan.expr import Expr, replaced, walk
from firesteel.plan.functions import FUNCTIONS, TYPES, Function
from firesteel.plan.types import FLOATS, INTEGERS, decimal_of, element_of, entry_of, fields_of, is_text, said, type_of

# --- trees as users write them ------------------------------------------------------------------------------------------


def attribute(name: str) -> Expr:
    return Expr("UnresolvedAttribute", {"name": name})


def call(name: str, *arguments: Expr) -> Expr:
    return Expr("UnresolvedFunction", {"name": name, "arguments": list(arguments)})


def literal(value: Any) -> Expr:
    """A constant of the type that ``lit`` gives it in Spark; a time without a zone stays one. Raises UsageError."""
    kind: pa.DataType | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        kind = pa.int32() if -(1 << 31) <= value < 1 << 31 else pa.int64()
    if isinstance(value, Decimal) and value.is_finite():
        _, digits, exponent = value.as_tuple()
        scale = max(-int(exponent), 0)
        kind = pa.decimal128(max(len(digits) + max(int(exponent), 0), scale, 1), scale) if scale <= 38 else None
    try:
        scalar: Any = value if isinstance(value, pa.Scalar) else pa.scalar(value, kind)
        return _constant(scalar.as_py(), type_of(scalar.type))
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise UsageError(f"{value!r} is not a constant: {str(error) or type(error).__name__}.") from None


def _constant(value: Any, kind: Any) -> Expr:
    """``value``: of Python."""
    if isinstance(kind, dict) and kind.get("arrow") == pa.null():
        kind = VOID
    if isinstance(kind, dict):
        raise ValueError(f"constants of type {said(kind)} are not taken")
    return Expr("Literal", {"value": _written(value)}, kind)


_DAY, _INSTANT = date(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)


def _written(value: Any) -> Any:
    """As plans have constants."""
    match value:
        case bytes():
            return value.hex().upper()
        case float():
            return repr(value).replace("inf", "Infinity").replace("nan", "NaN")
        case Decimal():
            return format(value, "f")
        case datetime():
            since = (value if value.tzinfo else value.replace(tzinfo=UTC)) - _INSTANT
            return since // timedelta(microseconds=1)
        case date():
            return (value - _DAY).days
        case _:
            return value


_INFIX = {"+", "-", "*", "/", "%", "=", "<", ">", "<=", ">=", "<=>", "and", "or", "&", "|", "^"}
_SPELT = {
    "not": "(NOT {0})", "!": "(NOT {0})", "~": "~{0}", "bitwise_not": "~{0}", "bitwiseNOT": "~{0}", "positive": "(+ {0})",
    "isnull": "({0} IS NULL)", "isnotnull": "({0} IS NOT NULL)", "like": "{0} LIKE {1}", "extract": "extract({0} FROM {1})",
    "datepart": "datepart({0} FROM {1})", "regexp_replace": "regexp_replace({0}, {1}, {2}, 1)",
}  # fmt: skip
_TRIMS = {"trim": "BOTH", "ltrim": "LEADING", "rtrim": "TRAILING"}
_CALLED = {
    **{name: name.upper() for name in (
        "sqrt", "signum", "degrees", "radians", "ceil", "floor", "rlike", "regexp", "regexp_like", "pi", "e", "exp", "expm1", "log10", "log2",
        "log1p", "power", "atanh", "cbrt", "sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh",
    )},
    "pow": "POWER", "toDegrees": "DEGREES", "toRadians": "RADIANS", "negate": "negative", "create_map": "map", "dateadd": "date_add",
    "timestamp_add": "timestampadd", "shiftLeft": "shiftleft", "shiftRight": "shiftright",
    "shiftRightUnsigned": "shiftrightunsigned",
}  # fmt: skip
_VARIABLE = "namedlambdavariable()"
_ORDER_OF_VALUES = (
    "lambdafunction((IF(((V IS NULL) AND (V IS NULL)), 0, (IF((V IS NULL), 1, (IF((V IS NULL), -1, "
    "(IF((V < V), -1, (IF((V > V), 1, 0)))))))))), V, V)"
).replace("V", _VARIABLE)


def text_of(node: Expr) -> str:  # noqa: PLR0911 - one for each kind
    """The expression as Spark names a column of it."""
    match node.cls:
        case "UnresolvedAttribute":
            return node["name"]
        case "Literal":
            return _constant_text(node["value"], node.type)
        case "UnresolvedCast":
            return f"CAST({inner_text(node['child'])} AS {said(node.type).upper()})"
        case "UnresolvedExtractValue":
            key = node["extraction"]
            of = inner_text(node["child"])
            return f"{of}.{key['value']}" if key.type == "string" else f"{of}[{text_of(key)}]"
        case "Alias":
            return text_of(node["child"])
        case "WindowOf":
            return f"{node['function'].kind}()"
        case "Windowed":
            return node["text"]
        case "SortOrder":
            return f"{text_of(node['child'])} {'ASC NULLS FIRST' if node['ascending'] else 'DESC NULLS LAST'}"
        case "UnresolvedFunction":
            return _called(node["name"], [inner_text(one) for one in node["arguments"]])
        case "UnresolvedNamedLambdaVariable":
            return _VARIABLE
        case "LambdaFunction":
            return _called("lambdafunction", list(map(inner_text, (node["function"], *node["arguments"]))))
        case _:
            return str(node.fields.get("expression", node.cls))


def inner_text(node: Expr) -> str:
    """As :func:`text_of`, as a part of another expression."""
    if node.cls != "Alias":
        return text_of(node)
    name = node["name"]
    quoted = name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else f"`{name.replace('`', '``')}`"
    return f"{text_of(node)} AS {quoted}"


def _called(name: str, given: list[str]) -> str:
    if name in _INFIX and len(given) == 2:
        return f"({given[0]} {name.upper()} {given[1]})"
    if name in _SPELT:
        return _SPELT[name].format(*given)
    if name in _TRIMS and len(given) == 2:
        return f"TRIM({_TRIMS[name]} {given[1]} FROM {given[0]})"
    if name == "in":
        return f"({given[0]} IN ({', '.join(given[1:])}))"
    if name == "when":
        whens = " ".join(f"WHEN {a} THEN {b}" for a, b in zip(given[0::2], given[1::2], strict=False))
        return f"CASE {whens}{f' ELSE {given[-1]}' if len(given) % 2 else ''} END"
    if name == "log":
        name = "ln" if len(given) == 1 else "LOG"
    if name == "array_sort":
        given = [*given, _ORDER_OF_VALUES]
    if name in ("aggregate", "reduce") and len(given) == 3:
        given = [*given, f"lambdafunction({_VARIABLE}, {_VARIABLE})"]
    if name == "mask" and len(given) == 4:
        given = [*given, "NULL"]
    return f"{_CALLED.get(name, name)}({', '.join(given)})"


def _constant_text(value: Any, kind: Any) -> str:
    match kind:
        case _ if value is None:
            return "NULL"
        case "boolean":
            return str(value).lower()
        case "binary":
            return f"X'{value}'"
        case "date":
            return f"DATE '{_DAY + timedelta(days=value)}'"
        case "timestamp" | "timestamp_ntz":
            text = str((_INSTANT + timedelta(microseconds=value)).replace(tzinfo=None))
            return f"TIMESTAMP '{text.rstrip('0') if '.' in text else text}'"
        case _:
            return str(Decimal(value) if decimal_of(kind) else value)


def unnamed(node: Expr) -> bool:
    """Whether Spark's name for it is not surely :func:`text_of`."""
    return any(
        one.cls in ("Arrow", "SortOrder", "WindowOf")
        or (one.cls == "Literal" and not _has_one_text(one))
        or (one.cls == "UnresolvedCast" and isinstance(one.type, dict))
        for one in walk(node)
    )


def _has_one_text(constant: Expr) -> bool:
    """A double has one within the range where Java writes no exponent; a time with a zone is written in the session's one."""
    value = constant["value"]
    if constant.type in FLOATS and value not in (None, "0.0", "-0.0", "NaN", "Infinity", "-Infinity"):
        return 1e-3 <= abs(float(value)) < 1e7 and len(re.sub(r"\D", "", value).lstrip("0")) <= 16
    return value is None or constant.type != "timestamp"


# --- analysis -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Analysis:
    """``column``: the expression of a column by its name, or that of a field (``a.b``); raises UsageError. ``zone``: of the session."""

    column: Callable[[str], Expr]
    ansi: bool = True
    zone: str | None = None

    def resolved(self, node: Expr) -> Expr:
        """With types, as Spark would have it before its optimiser. Raises UsageError."""
        match node.cls:
            case "UnresolvedAttribute":
                return self.column(node["name"])
            case "UnresolvedFunction":
                return self._call(node)
            case "UnresolvedCast":
                return self.cast(self.resolved(node["child"]), node.type)
            case "UnresolvedExtractValue":
                return self.part(self.resolved(node["child"]), self.resolved(node["extraction"]))
            case "Alias":
                return self.resolved(node["child"])
            case "WindowOf":
                raise UsageError(f"{text_of(node)} over a window is for select() and withColumn().")
            case "SortOrder":
                raise UsageError(
                    f"{text_of(node)} is an order, and not a value.", hint="Write it in sort() or orderBy()."
                )
            case _:
                return node

    def _call(self, node: Expr) -> Expr:
        function = FUNCTIONS.get(node["name"])
        if function is None:
            raise UsageError(f"There is no function {node['name']}().")
        missing = function.parameters[len(node["arguments"]) :]
        defaults = [one.default[0] for one in missing if one.default and one.default[0] is not None]
        arguments = [*node["arguments"], *map(literal, defaults)]
        if function.call is not None:
            names = [one.name for one in function.parameters]
            return self.resolved(_spoken(function.call, dict(zip(names, arguments, strict=False))))
        given = [self.resolved(one) for one in arguments]
        if function.rule:
            rule = _RULES.get(function.rule)
            return rule(self, node, given) if rule else self._operator(function.rule, node, given)
        return self._of_line(function, node, given)

    def _of_line(self, function: Function, node: Expr, given: list[Expr]) -> Expr:
        fields: dict[str, Any] = {}
        rest = list(given)
        for name, taken in function.fields:
            if isinstance(taken, tuple):
                fields[name] = {"ANSI": self.ansi, "LEGACY": not self.ansi, "ZONE": self.zone}.get(
                    str(taken[0]), taken[0]
                )
                if isinstance(fields[name], int) and not isinstance(fields[name], bool):
                    fields[name] = literal(fields[name])
            else:
                fields[name] = self.argument(rest.pop(0), taken, node) if rest else None
        made = [one for one in fields.values() if isinstance(one, Expr)]
        kind = TYPES[function.type[1:]](made) if function.type.startswith("=") else function.type
        return Expr(function.cls, fields, kind)

    # --- casts ------------------------------------------------------------------------------------------------------

    def cast(self, node: Expr, to: Any) -> Expr:
        mode = "ANSI" if self.ansi else "LEGACY"
        return Expr("Cast", {"child": node, "timeZoneId": self.zone, "evalMode": mode}, to)

    def fitted(self, node: Expr, to: Any) -> Expr:
        return node if node.type == to else self.cast(node, to)

    def argument(self, node: Expr, wanted: str, within: Expr) -> Expr:
        """Raises UsageError for a value that does not fit. A ``clock`` is a timestamp, of which only what clocks show counts."""
        if wanted == "clock":
            wanted = "timestamp_ntz" if not self.zone and node.type in ("date", "timestamp_ntz") else "timestamp"
        to = coercion.implicit(node.type, wanted, self.ansi)
        if to is None:
            raise UsageError(
                f"{_words(within)} takes {wanted.strip('!').replace('/', ' or ')}, and not {said(node.type)}.",
                hint='Cast it: c.cast("string").' if wanted == "string" else "Cast it to one of these types.",
            )
        return self.fitted(node, to)

    def alike(self, nodes: Sequence[Expr], within: Expr, *, texts: bool = True) -> list[Expr]:
        """The values as one type. Raises UsageError where there is none."""
        to = common([node.type for node in nodes], self.ansi, texts=texts)
        if to is None:
            raise _no_common_type(nodes, within)
        return [self.fitted(node, to) for node in nodes]

    # --- operators --------------------------------------------------------------------------------------------------

    def _operator(self, cls: str, node: Expr, given: list[Expr], mode: str | None = None) -> Expr:
        a, b = given
        if cls not in _ARITHMETIC:
            return Expr(cls, dict(zip(("left", "right"), self._compared(a, b, node), strict=True)), "boolean")
        days = self._of_days(cls, a, b)
        if days is not None:
            return days
        a, b = self._numbers(cls, a, b)
        numbers = is_number(a.type) and is_number(b.type)
        if not numbers or (cls == "IntegralDivide" and a.type in FLOATS):
            raise UsageError(
                f"{_words(node)}: '{node['name']}' is of numbers, and not of {said(a.type)} and {said(b.type)}.",
                hint='Cast what is no number: c.cast("double").',
            )
        fields = {"evalMode": mode or ("ANSI" if self.ansi else "LEGACY"), "allowDecimalPrecisionLoss": True}
        context = Expr("NumericEvalContext", fields)
        return Expr(cls, {"left": a, "right": b, "evalContext": context}, _computed(cls, a.type, b.type))

    def _of_days(self, cls: str, a: Expr, b: Expr) -> Expr | None:
        """A day before or after another one."""
        if cls == "Add" and b.type == "date":
            a, b = b, a
        if cls in ("Add", "Subtract") and a.type == "date" and b.type in ("integer", "short", "byte"):
            return Expr("DateAdd" if cls == "Add" else "DateSub", {"startDate": a, "days": b}, "date")
        return None

    def _numbers(self, cls: str, a: Expr, b: Expr) -> tuple[Expr, Expr]:
        if self.ansi and (to := coercion.with_text(a.type, b.type)) is not None:
            a, b = self.fitted(a, to), self.fitted(b, to)
        if not self.ansi:
            a, b = (self.cast(one, "double") if is_text(one.type) else one for one in (a, b))
        a, b = self._decimals(a, b)
        decimals = any(decimal_of(one.type) for one in (a, b))
        if cls == "Divide" and not decimals:
            return self._doubles(a), self._doubles(b)
        if cls == "IntegralDivide" and not decimals:
            a, b = (self.cast(one, "long") if one.type in INTEGERS[:3] else one for one in (a, b))
        if decimal_of(a.type) and decimal_of(b.type):
            return a, b
        to = coercion.tightest(a.type, b.type, self.ansi)
        return (a, b) if to is None else (self.fitted(a, to), self.fitted(b, to))

    def _doubles(self, node: Expr) -> Expr:
        return self.fitted(node, "double") if is_number(node.type) or node.type == VOID else node

    def _decimals(self, a: Expr, b: Expr) -> tuple[Expr, Expr]:
        """Of a decimal and another number: two decimals, or two doubles."""
        if bool(decimal_of(a.type)) == bool(decimal_of(b.type)) or not (is_number(a.type) and is_number(b.type)):
            return a, b
        if {a.type, b.type} & set(FLOATS):
            a, b = (self.cast(one, "double") if decimal_of(one.type) else one for one in (a, b))
            return a, b
        return self._exact(a), self._exact(b)

    def _exact(self, node: Expr) -> Expr:
        if decimal_of(node.type):
            return node
        if node.cls == "Literal" and node["value"] is not None:
            return self.cast(node, decimal(len(str(abs(node["value"]))), 0))
        return self.cast(node, decimal(*coercion.as_decimal(node.type)))

    def _compared(self, a: Expr, b: Expr, node: Expr) -> tuple[Expr, Expr]:
        a, b = self._decimals(a, b)
        to = coercion.compared(a.type, b.type, self.ansi)
        if to is None or entry_of(to) is not None:
            raise _no_common_type([a, b], node)
        return self.fitted(a, to), self.fitted(b, to)

    # --- parts of nested values -------------------------------------------------------------------------------------

    def part(self, of: Expr, key: Expr) -> Expr:
        """A field of a struct, a value of an array or of a map. Raises UsageError."""
        fields, entry, name = fields_of(of.type), entry_of(of.type), key.get("value")
        if fields is not None and isinstance(name, str):
            found = [i for i, (field, _) in enumerate(fields) if field == name] or [
                i for i, (field, _) in enumerate(fields) if field.lower() == name.lower()
            ]
            if len(found) == 1:
                return Expr("GetStructField", {"child": of, "ordinal": found[0], "name": name}, fields[found[0]][1])
            raise UsageError(
                f"There is no field '{name}' in {_words(of)}, which has {', '.join(n for n, _ in fields)}."
            )
        if element_of(of.type) is not None:
            at = self.argument(key, "integral", of)
            return Expr("GetArrayItem", {"child": of, "ordinal": at, "failOnError": self.ansi}, element_of(of.type))
        if entry is not None:
            return Expr("GetMapValue", {"child": of, "key": self.fitted_key(key, entry[0])}, entry[1])
        raise UsageError(f"There is no field '{name}' in {_words(of)}, which is {said(of.type)}.")

    def fitted_key(self, key: Expr, kind: Any) -> Expr:
        to = coercion.implicit(key.type, kind, self.ansi) if isinstance(kind, str) else None
        return key if to is None else self.fitted(key, to)

    # --- functions of functions -------------------------------------------------------------------------------------

    def applied(self, function: Expr, kinds: Sequence[Any]) -> Expr:
        """A function of the user's, of values of these types; it may take fewer. Raises UsageError."""
        given = function["arguments"]
        if len(given) > len(kinds):
            raise UsageError(f"A function of at most {len(kinds)} values is wanted, not of {len(given)}.")
        known = {
            one["name"]: Expr("NamedLambdaVariable", {"name": one["name"], "exprId": next(_numbers)}, kind)
            for one, kind in zip(given, kinds, strict=False)
        }

        def variable(node: Expr) -> Expr | None:
            return known.get(node["name"]) if node.cls == "UnresolvedNamedLambdaVariable" else None

        body = self.resolved(replaced(function["function"], variable))
        return Expr("LambdaFunction", {"function": body, "arguments": list(known.values()), "hidden": False}, body.type)


_numbers = count(1)


def _spoken(tree: ast.expr, given: dict[str, Expr]) -> Expr:
    """A call of other functions, with these arguments."""
    match tree:
        case ast.Call(func=ast.Name(id=name), args=arguments):
            found = [
                _spoken(one, given) for one in arguments if not (isinstance(one, ast.Name) and one.id not in given)
            ]
            return call(name, *found)
        case ast.Name(id=name):
            return given[name]
        case _:
            return literal(ast.literal_eval(tree))


def _words(node: Expr) -> str:
    return shortened(text_of(node))


def _no_common_type(nodes: Sequence[Expr], within: Expr) -> UsageError:
    kinds = " and ".join(dict.fromkeys(said(node.type) for node in nodes))
    return UsageError(
        f"{_words(within)} brings {kinds} together, which are no types of one kind.",
        hint='Cast one of them: c.cast("double").',
    )


_ARITHMETIC = ("Add", "Subtract", "Multiply", "Divide", "Remainder", "Pmod", "IntegralDivide")


def _computed(cls: str, a: Any, b: Any) -> Any:
    """The type of a result."""
    if cls == "IntegralDivide":
        return "long"
    if not (decimal_of(a) and decimal_of(b)):
        return a
    (p1, s1), (p2, s2) = coercion.as_decimal(a), coercion.as_decimal(b)
    if cls == "Multiply":
        return coercion.bounded(p1 + p2 + 1, s1 + s2)
    if cls == "Divide":
        scale = max(6, s1 + p2 + 1)
        return coercion.bounded(p1 - s1 + s2 + scale, scale)
    scale, whole = max(s1, s2), (p1 - s1, p2 - s2)
    if cls in ("Add", "Subtract"):
        return coercion.bounded(max(whole) + scale + 1, scale)
    return coercion.bounded(min(whole) + scale, scale)


# --- rules ----------------------------------------------------------------------------------------------------------------

_Rule = Callable[[Analysis, Expr, list[Expr]], Expr]


def _case(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    conditions = [x.argument(one, "boolean", node) for one in given[0 : len(given) // 2 * 2 : 2]]
    other = given[-1:] if len(given) % 2 else []
    values = x.alike([*given[1::2], *other], node)
    branches = [Expr("Tuple2", {"_1": a, "_2": b}) for a, b in zip(conditions, values, strict=False)]
    return Expr("CaseWhen", {"branches": branches, "elseValue": values[-1] if other else None}, values[0].type)


def _check_number(node: Expr, given: list[Expr], least: int) -> None:
    if len(given) < least:
        raise UsageError(f"{node['name']}() wants at least {'one column' if least == 1 else 'two columns'}.")


def _of_all(cls: str, least: int, *, texts: bool) -> _Rule:
    def rule(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
        _check_number(node, given, least)
        values = x.alike(given, node, texts=texts)
        return Expr(cls, {"children": values}, values[0].type)

    return rule


def _hash(cls: str, kind: str) -> _Rule:
    def rule(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
        _check_number(node, given, 1)
        return Expr(cls, {"children": given, "seed": 42}, kind)

    return rule


def _among(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    if len(given) == 1:
        return Expr("Literal", {"value": False}, "boolean")
    value, *others = x.alike(given, node)
    return Expr("In", {"value": value, "list": others}, "boolean")


def _if(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    condition, *values = given
    yes, no = x.alike(values, node)
    fields = {"predicate": x.argument(condition, "boolean", node), "trueValue": yes, "falseValue": no}
    return Expr("If", fields, yes.type)


def _null_if(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    null = Expr("Literal", {"value": None}, given[0].type)
    same = x.resolved(call("=", *node["arguments"]))
    return Expr("If", {"predicate": same, "trueValue": null, "falseValue": given[0]}, given[0].type)


def _not_nan(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    floats = [one if one.type in FLOATS else x.argument(one, "double/float", node) for one in given]
    a, b = x.alike(floats, node)
    return Expr("NaNvl", {"left": a, "right": b}, a.type)


def _concat(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    arrays = all(element_of(one.type) is not None for one in given)
    if arrays and given:
        values = x.alike(given, node)
    elif given and all(one.type == "binary" for one in given):
        values = given
    else:
        values = [x.argument(one, "string", node) for one in given]
    return Expr("Concat", {"children": values}, values[0].type if values else "string")


def _concat_ws(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    values = [x.argument(given[0], "string", node), *(x.argument(one, "strings/string", node) for one in given[1:])]
    return Expr("ConcatWs", {"children": values}, "string")


def _both(cls: str, wanted: str) -> _Rule:
    """Of two values of the same type."""

    def rule(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
        a, b = given
        to = coercion.with_text(a.type, b.type) if x.ansi else None
        to = to or coercion.tightest(a.type, b.type, x.ansi)
        if to is None or not accepts(wanted, "boolean" if to == VOID else to):
            raise _wrong(node, [one for one in given if not accepts(wanted, one.type)] or given, wanted)
        return Expr(cls, {"left": x.fitted(a, to), "right": x.fitted(b, to)}, to)

    return rule


def _wrong(node: Expr, given: Sequence[Expr], wanted: str) -> UsageError:
    if wanted == "boolean":
        one = next(a for a, b in zip([*node["arguments"]], range(9), strict=False) if b >= 0)
        return UsageError(
            f"{_words(one)} must be true or false, and is {said(given[0].type)}.", hint="Compare it with something."
        )
    return UsageError(f"{_words(node)} is of {wanted} values, and not of {said(given[0].type)}.", hint="Cast them.")


def _to_date(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    if len(given) == 1:
        return x.cast(x.argument(given[0], "string/date/timestamp/timestamp_ntz", node), "date")
    form = x.argument(given[1], "string", node)
    fields = {"left": given[0], "right": form, "timeZoneId": x.zone, "failOnError": x.ansi}
    return x.cast(Expr("GetTimestamp", fields, "timestamp" if x.zone else "timestamp_ntz"), "date")


_PARTS = {
    name: function
    for function, names in {
        "year": "YEAR Y YEARS YR YRS", "quarter": "QUARTER QTR", "month": "MONTH MON MONS MONTHS", "weekofyear": "WEEK W WEEKS",
        "dayofmonth": "DAY D DAYS", "dayofweek": "DAYOFWEEK DOW", "dayofyear": "DOY", "hour": "HOUR H HOURS HR HRS",
        "minute": "MINUTE M MIN MINS MINUTES",
    }.items()
    for name in names.split()
}  # fmt: skip


def _extract(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    field, of = str(given[0].get("value")).upper(), node["arguments"][1]
    if field in ("DAYOFWEEK_ISO", "DOW_ISO"):
        return x.resolved(call("+", call("weekday", of), literal(1)))
    if field not in _PARTS:
        raise UsageError(f"{_words(node)}: '{field}' is not taken.", hint=f"There are {', '.join(_PARTS)}.")
    return x.resolved(call(_PARTS[field], of))


def _units_later(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    unit, quantity, time = given[0].get("value"), x.argument(given[1], "long", node), x.argument(given[2], "time", node)
    fields = {"unit": unit, "quantity": quantity, "timestamp": time, "timeZoneId": x.zone}
    return Expr("TimestampAdd", fields, time.type)


def _to_local_time(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    return x.cast(x.argument(given[0], "string/date/timestamp/timestamp_ntz", node), "timestamp_ntz")


def _local_time(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    names = ("year", "month", "day", "hour", "min")
    fields = {name: x.argument(one, "integer", node) for name, one in zip(names, given, strict=False)}
    fields["sec"] = x.fitted(x.argument(given[5], "number", node), "decimal(16,6)")
    zone = {"timezone": None, "timeZoneId": x.zone, "failOnError": x.ansi}
    return Expr("MakeTimestamp", {**fields, **zone}, "timestamp_ntz")


def _try(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    """Null where the divisor is zero."""
    if not all(is_number(one.type) for one in given):
        raise UsageError(f"{_words(node)} is of numbers.", hint='Cast what is no number: c.cast("double").')
    return x._operator({"try_divide": "Divide", "try_mod": "Remainder"}[node["name"]], node, given, "TRY")


def _right(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    text, size = x.argument(given[0], "string", node), x.argument(given[1], "integer", node)
    back = Expr("UnaryMinus", {"child": size, "failOnError": False}, "integer")
    some = call("iff", call("<=", size, literal(0)), literal(""), call("substring", text, back))
    return x.resolved(call("iff", call("isnull", text), Expr("Literal", {"value": None}, "string"), some))


def _log(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    values = [x.argument(one, "double", node) for one in given]
    fields = {"child": values[0]} if len(values) == 1 else {"left": values[0], "right": values[1]}
    return Expr("Log" if len(values) == 1 else "Logarithm", fields, "double")


def _type_name(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    if isinstance(given[0].type, dict):
        raise UsageError(f"{_words(node)} is of plain types, and not of {said(given[0].type)}.")
    return literal(said(given[0].type))


def _base64(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    called = {"staticObject": "org.apache.spark.sql.catalyst.expressions.Base64", "functionName": "encode"}
    return Expr(
        "StaticInvoke", {**called, "arguments": [x.argument(given[0], "binary", node), literal(True)]}, "string"
    )


def _struct(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    names = [_name(one, i) for i, one in enumerate(node["arguments"])]
    children = [part for name, one in zip(names, given, strict=True) for part in (literal(name), one)]
    kind = coercion.struct_of(zip(names, (one.type for one in given), strict=True))
    return Expr("CreateNamedStruct", {"children": children}, kind)


def _name(node: Expr, place: int) -> str:
    if node.cls == "UnresolvedAttribute":
        return node["name"].rpartition(".")[2]
    if node.cls == "UnresolvedExtractValue" and node["extraction"].type == "string":
        return node["extraction"]["value"]
    return node["name"] if node.cls == "Alias" else f"col{place + 1}"


def _array(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    values = x.alike(given, node) if given else []
    kind = coercion.array_of(values[0].type if values else VOID)
    return Expr("CreateArray", {"children": values, "useStringTypeWhenEmpty": False}, kind)


def _map(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    if not given or len(given) % 2:
        raise UsageError(f"{_words(node)} wants keys and values by turns.")
    keys, values = x.alike(given[0::2], node), x.alike(given[1::2], node)
    children = [one for pair in zip(keys, values, strict=True) for one in pair]
    kind = coercion.map_of(keys[0].type, values[0].type)
    return Expr("CreateMap", {"children": children, "useStringTypeWhenEmpty": False}, kind)


def _named_struct(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    names = [one.get("value") for one in given[0::2]]
    if len(given) % 2 or not given or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{_words(node)} wants constant names and values by turns.")
    fields = [(str(name), one.type) for name, one in zip(names, given[1::2], strict=True)]
    return Expr("CreateNamedStruct", {"children": given}, coercion.struct_of(fields))


def _with_element(x: Analysis, node: Expr, given: list[Expr]) -> tuple[Expr, Expr]:
    """An array, and a value that may be in it."""
    array, value = x.argument(given[0], "array", node), given[1]
    to = coercion.common([element_of(array.type), value.type], x.ansi, texts=False)
    if to is None:
        raise _no_common_type(given, node)
    return x.fitted(array, coercion.array_of(to)), x.fitted(value, to)


def _of_element(cls: str, kind: Any) -> _Rule:
    """Of an array and a value that may be in it. ``kind``: of the result; None: that of the array."""

    def rule(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
        array, value = _with_element(x, node, given)
        return Expr(cls, {"left": array, "right": value}, kind or array.type)

    return rule


def _inserted(at: int | None = None) -> _Rule:
    """``at``: the place; None: the argument between the array and the value."""

    def rule(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
        array, value = _with_element(x, node, [given[0], given[-1]])
        place = x.argument(given[1], "integer", node) if at is None else literal(at)
        fields = {"srcArrayExpr": array, "posExpr": place, "itemExpr": value, "legacyNegativeIndex": False}
        return Expr("ArrayInsert", fields, array.type)

    return rule


def _lambda(*names: str, of: Callable[..., Expr]) -> Expr:
    variables = [Expr("UnresolvedNamedLambdaVariable", {"name": name}) for name in names]
    return Expr("LambdaFunction", {"function": of(*variables), "arguments": variables})


def _compact(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    known = _lambda("arg", of=partial(call, "isnotnull"))
    made = _each("ArrayFilter", lambda array, _: array)(x, node, [given[0], known])
    return Expr("KnownNotContainsNull", {"child": made}, made.type)


def _sorted_array(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    """As Spark compares without a function of the user's: nulls last."""
    array = x.argument(given[0], "array", node)

    def compared(a: Expr, b: Expr) -> Expr:
        values = call("iff", call("<", a, b), literal(-1), call("iff", call(">", a, b), literal(1), literal(0)))
        one_null = call("iff", call("isnull", a), literal(1), call("iff", call("isnull", b), literal(-1), values))
        return call("iff", call("and", call("isnull", a), call("isnull", b)), literal(0), one_null)

    function = x.applied(_lambda("left", "right", of=compared), [element_of(array.type)] * 2)
    fields = {"argument": array, "function": function, "allowNullComparisonResult": False}
    return Expr("ArraySort", fields, array.type)


def _zipped(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    """Fields have the names of columns, or the arrays' places."""
    if any(one.cls == "UnresolvedExtractValue" for one in node["arguments"]):
        raise UsageError(f"{_words(node)} has a part of a column without a name.", hint="Make it a column before.")
    named = ("UnresolvedAttribute", "Alias")
    names = [_name(one, i) if one.cls in named else str(i) for i, one in enumerate(node["arguments"])]
    arrays = [x.argument(one, "array", node) for one in given]
    kind = coercion.struct_of(zip(names, (element_of(one.type) for one in arrays), strict=True))
    return Expr("ArraysZip", {"children": arrays, "names": list(map(literal, names))}, coercion.array_of(kind))


def _sequence(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    of_days = len(given) == 2 and all(one.type == "date" for one in given)
    values = given if of_days else x.alike([x.argument(one, "!integral", node) for one in given], node)
    start, stop, step = [*values, None][:3]
    fields = {"start": start, "stop": stop, "stepOpt": step, "timeZoneId": x.zone}
    return Expr("Sequence", fields, coercion.array_of(values[0].type))


def _of_arrays(cls: str, kind: Any = None) -> _Rule:
    def rule(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
        a, b = x.alike([x.argument(one, "array", node) for one in given], node, texts=False)
        return Expr(cls, {"left": a, "right": b}, kind or a.type)

    return rule


def _element_at(failing: bool) -> _Rule:
    def rule(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
        of, key = given
        entry = entry_of(of.type)
        if entry is None:
            of, key = x.argument(of, "array", node), x.argument(key, "integer", node)
        fields = {
            "left": of,
            "right": key if entry is None else x.fitted_key(key, entry[0]),
            "defaultValueOutOfBound": None,
            "failOnError": failing and x.ansi,
        }
        return Expr("ElementAt", fields, element_of(of.type) if entry is None else entry[1])

    return rule


def _map_concat(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    maps = x.alike([x.argument(one, "map", node) for one in given], node)
    return Expr("MapConcat", {"children": maps}, maps[0].type)


def _split_part(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    text, by = (x.argument(one, "string", node) for one in given[:2])
    parts = Expr("StringSplitSQL", {"str": text, "delimiter": by}, coercion.array_of("string"))
    fields = {"left": parts, "right": x.argument(given[2], "integer", node), "defaultValueOutOfBound": literal("")}
    return Expr("ElementAt", {**fields, "failOnError": False}, "string")


def _each(cls: str, kind: Callable[[Any, Any], Any]) -> _Rule:
    """A function of an array's values, and of their places. ``kind``: of the result, by the array's type and the function's."""

    def rule(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
        array = x.argument(given[0], "array", node)
        kinds = [element_of(array.type), "integer"]
        function = x.applied(given[1], kinds if cls in ("ArrayTransform", "ArrayFilter") else kinds[:1])
        more = {"followThreeValuedLogic": True} if cls == "ArrayExists" else {}
        return Expr(cls, {"argument": array, "function": function, **more}, kind(array.type, function.type))

    return rule


def _entries(cls: str, kind: Callable[[Any, Any], Any]) -> _Rule:
    """A function of the keys and values of a map. ``kind``: of the result, by the map's type and the function's."""

    def rule(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
        of = x.argument(given[0], "map", node)
        function = x.applied(given[1], entry_of(of.type) or ())
        return Expr(cls, {"argument": of, "function": function}, kind(of.type, function.type))

    return rule


def _zip_with(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    a, b = (x.argument(one, "array", node) for one in given[:2])
    function = x.applied(given[2], [element_of(a.type), element_of(b.type)])
    return Expr("ZipWith", {"left": a, "right": b, "function": function}, coercion.array_of(function.type))


def _map_zip_with(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    maps = [x.argument(one, "map", node) for one in given[:2]]
    (key, a), (other, b) = (entry_of(one.type) or (VOID, VOID) for one in maps)
    if key != other:
        raise _no_common_type(maps, node)
    function = x.applied(given[2], [key, a, b])
    fields = {"left": maps[0], "right": maps[1], "function": function}
    return Expr("MapZipWith", fields, coercion.map_of(key, function.type))


def _aggregate(x: Analysis, node: Expr, given: list[Expr]) -> Expr:
    array, zero = x.argument(given[0], "array", node), given[1]
    merge = x.applied(given[2], [zero.type, element_of(array.type)])
    if merge.type != zero.type:
        raise UsageError(
            f"aggregate() begins with {said(zero.type)}, and its function gives {said(merge.type)}.",
            hint="Cast the first value to the type of the others.",
        )
    same = Expr("UnresolvedNamedLambdaVariable", {"name": "x"})
    last = given[3] if len(given) > 3 else Expr("LambdaFunction", {"function": same, "arguments": [same]})
    finish = x.applied(last, [zero.type])
    fields = {"argument": array, "zero": zero, "merge": merge, "finish": finish}
    return Expr("ArrayAggregate", fields, finish.type)


_RULES: dict[str, _Rule] = {
    "case": _case,
    "coalesce": _of_all("Coalesce", 1, texts=True),
    "hash": _hash("Murmur3Hash", "integer"),
    "xxhash64": _hash("XxHash64", "long"),
    "greatest": _of_all("Greatest", 2, texts=False),
    "least": _of_all("Least", 2, texts=False),
    "among": _among,
    "iff": _if,
    "nullif": _null_if,
    "nanvl": _not_nan,
    "concat": _concat,
    "concat_ws": _concat_ws,
    "and": _both("And", "boolean"),
    "or": _both("Or", "boolean"),
    "bits_and": _both("BitwiseAnd", "integral"),
    "bits_or": _both("BitwiseOr", "integral"),
    "bits_xor": _both("BitwiseXor", "integral"),
    "to_date": _to_date,
    "struct": _struct,
    "array": _array,
    "map": _map,
    "named_struct": _named_struct,
    "array_contains": _of_element("ArrayContains", "boolean"),
    "array_position": _of_element("ArrayPosition", "long"),
    "array_remove": _of_element("ArrayRemove", None),
    "array_append": _inserted(-1),
    "array_prepend": _inserted(1),
    "array_insert": _inserted(),
    "array_compact": _compact,
    "array_sort": _sorted_array,
    "arrays_zip": _zipped,
    "sequence": _sequence,
    "extract": _extract,
    "timestamp_add": _units_later,
    "to_timestamp_ntz": _to_local_time,
    "make_timestamp_ntz": _local_time,
    "try": _try,
    "right": _right,
    "log": _log,
    "typeof": _type_name,
    "base64": _base64,
    "positive": lambda x, node, given: x.argument(given[0], "number", node),
    "array_union": _of_arrays("ArrayUnion"),
    "array_intersect": _of_arrays("ArrayIntersect"),
    "array_except": _of_arrays("ArrayExcept"),
    "arrays_overlap": _of_arrays("ArraysOverlap", "boolean"),
    "element_at": _element_at(True),
    "try_element_at": _element_at(False),
    "map_concat": _map_concat,
    "split_part": _split_part,
    "ArrayTransform": _each("ArrayTransform", lambda _, made: coercion.array_of(made)),
    "ArrayFilter": _each("ArrayFilter", lambda array, _: array),
    "ArrayExists": _each("ArrayExists", lambda _, made: made),
    "ArrayForAll": _each("ArrayForAll", lambda _, made: made),
    "MapFilter": _entries("MapFilter", lambda of, _: of),
    "TransformKeys": _entries("TransformKeys", lambda of, made: coercion.map_of(made, of["valueType"])),
    "TransformValues": _entries("TransformValues", lambda of, made: coercion.map_of(of["keyType"], made)),
    "ZipWith": _zip_with,
    "MapZipWith": _map_zip_with,
    "ArrayAggregate": _aggregate,
}


# --- constants --------------------------------------------------------------------------------------------------------------


def folded(node: Expr) -> Expr:
    """The expression with casts of constants worked out where that is plain: rules of the engine and statistics of files want constants."""
    if node.cls == "Literal" and node.type == VOID:
        return replace(node, type="boolean")  # the engine's nulls have a type
    if node.cls == "Cast" and (child := folded(node["child"])).cls == "Literal":
        value = _as(child["value"], child.type, node.type)
        if value is not _UNKNOWN:
            return Expr("Literal", {"value": value}, node.type)
        return replace(node, fields={**node.fields, "child": child})
    fields = {name: _folded(field) for name, field in node.fields.items()}
    text = fields["child"].get("value") if node.cls in ("Lower", "Upper") else None
    if isinstance(text, str) and text.isascii():
        return Expr("Literal", {"value": text.lower() if node.cls == "Lower" else text.upper()}, "string")
    return replace(node, fields=fields)


def _folded(value: Any) -> Any:
    if isinstance(value, list):
        return [_folded(one) for one in value]
    return folded(value) if isinstance(value, Expr) else value


_UNKNOWN: Any = object()
_BOUNDS = {"byte": 7, "short": 15, "integer": 31, "long": 63}


def _as(value: Any, kind: Any, to: Any) -> Any:  # noqa: PLR0911 - one for each family
    """A constant of another type; ``_UNKNOWN`` where that is more than to write it otherwise."""
    if value is None:
        return None
    if kind == to:
        return value
    if kind in INTEGERS and to in INTEGERS:
        return value if -(1 << _BOUNDS[to]) <= value < 1 << _BOUNDS[to] else _UNKNOWN
    if kind in INTEGERS and (found := decimal_of(to)):
        return str(value) if len(str(abs(value))) <= found[0] - found[1] else _UNKNOWN
    if kind in INTEGERS and to == "double":
        return _written(float(value)) if abs(value) <= 1 << 53 else _UNKNOWN
    if kind in INTEGERS and to == "string":
        return str(value)
    if kind == "float" and to == "double":
        return _UNKNOWN
    if kind == "string" and to in ("date", "timestamp", "timestamp_ntz"):
        return _read(value, to)
    return _UNKNOWN


_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})")
_TIME = re.compile(
    r"(\d{4}-\d{1,2}-\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?)?(Z|[+-]\d{2}:\d{2})?"
)


def _read(text: str, kind: str) -> Any:
    """A text as a day or a time, which has a zone where its type has one. Raises UsageError."""
    day = kind == "date"
    found = (_DATE if day else _TIME).fullmatch(text.strip())
    try:
        if found is None:
            raise ValueError(text)
        if day:
            return _written(date(*map(int, found.groups())))
        begin, hour, minute, second, fraction, zone = found.groups()
        if (zone is None) != (kind == "timestamp_ntz"):
            need = "an offset, as the times have a zone: '2026-01-31T12:00:00Z'" if zone is None else "no offset"
            raise UsageError(f"The text {text!r} needs {need}.")
        clock = [int(part or 0) for part in (hour, minute, second)]
        when = datetime(*map(int, begin.split("-")), *clock, int((fraction or "").ljust(6, "0")))  # pyright: ignore[reportCallIssue]
        offset = "+00:00" if zone in (None, "Z") else zone
        return _written(datetime.fromisoformat(f"{when.isoformat()}{offset}"))
    except (ValueError, OverflowError):
        raise UsageError(
            f"{text!r} is no {'date' if day else 'time'}.",
            hint=f"Write it as '2026-01-31'{'.' if day else ' or 2026-01-31 12:00:00.'}",
        ) from None
