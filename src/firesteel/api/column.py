"""Column: an expression as a PySpark user writes it, with Spark's meaning (ANSI). It knows no types until a step resolves it over its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.api.ddl import parse_ddl
from firesteel.errors import UsageError, shortened
from firesteel.plan.analysis import attribute, call, literal, text_of
from firesteel.plan.expr import Expr
from firesteel.plan.types import sparks_type

HINT = "A Column of pyspark.sql.functions is taken, too: what is not said here, Spark's optimiser translates."


class Column:
    """Made by ``firesteel.functions``: ``F.col("n") % 3``, ``F.when(F.col("n").between(1, 9), "some").otherwise("many")``."""

    __hash__ = None  # pyright: ignore[reportAssignmentType] - as == gives a Column

    def __init__(self, tree: Expr) -> None:
        self.tree = tree
        """As ``plan.analysis`` resolves it."""

    # --- operators ---

    def __add__(self, other: Any) -> Column:
        return _of("+", self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Column:
        return _of("-", self, other)

    def __rsub__(self, other: Any) -> Column:
        return _of("-", other, self)

    def __mul__(self, other: Any) -> Column:
        return _of("*", self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Column:
        return _of("/", self, other)

    def __rtruediv__(self, other: Any) -> Column:
        return _of("/", other, self)

    def __mod__(self, other: Any) -> Column:
        return _of("%", self, other)

    def __rmod__(self, other: Any) -> Column:
        return _of("%", other, self)

    def __pow__(self, other: Any) -> Column:
        return _of("power", self, other)

    def __rpow__(self, other: Any) -> Column:
        return _of("power", other, self)

    def __neg__(self) -> Column:
        return _of("negative", self)

    def __eq__(self, other: object) -> Column:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _of("=", self, other)

    def __ne__(self, other: object) -> Column:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _of("not", _of("=", self, other))

    def __lt__(self, other: Any) -> Column:
        return _of("<", self, other)

    def __le__(self, other: Any) -> Column:
        return _of("<=", self, other)

    def __gt__(self, other: Any) -> Column:
        return _of(">", self, other)

    def __ge__(self, other: Any) -> Column:
        return _of(">=", self, other)

    def __and__(self, other: Any) -> Column:
        return _of("and", self, other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Column:
        return _of("or", self, other)

    __ror__ = __or__

    def __invert__(self) -> Column:
        return _of("not", self)

    def __bool__(self) -> bool:
        raise UsageError(
            f"The column {self} is true or false of a row, not by itself.", hint="Write & for and, | for or, ~ for not."
        )

    def __getitem__(self, key: Any) -> Column:
        """A value of an array by its place from 0, of a map by its key, a field of a struct by its name."""
        return Column(Expr("UnresolvedExtractValue", {"child": self.tree, "extraction": column(key).tree}))

    def __iter__(self) -> Any:
        raise UsageError(f"The column {self} is no list.", hint="A value of it is column[0].")

    # --- PySpark's methods ---

    def eqNullSafe(self, other: Any) -> Column:  # noqa: N802
        """Equal, or both null: never null itself."""
        return _of("<=>", self, other)

    def between(self, lowerBound: Any, upperBound: Any) -> Column:  # noqa: N803
        """At least ``lowerBound`` and at most ``upperBound``."""
        return (self >= lowerBound) & (self <= upperBound)

    def isin(self, *cols: Any) -> Column:
        """Is one of the values. Null where it is null itself, and where a value is null and no other value is equal."""
        is_list = len(cols) == 1 and isinstance(cols[0], list | set | tuple)
        return _of("in", self, *(list(cast(Any, cols[0])) if is_list else cols))

    def isNull(self) -> Column:  # noqa: N802
        return _of("isnull", self)

    def isNotNull(self) -> Column:  # noqa: N802
        return _of("isnotnull", self)

    def isNaN(self) -> Column:  # noqa: N802
        """False of a null, as in Spark."""
        return _of("isnan", self)

    def like(self, other: str) -> Column:
        r"""SQL's LIKE: ``%`` is any text, ``_`` any character, ``\`` takes the next one's meaning away."""
        return _of("like", self, other)

    def ilike(self, other: str) -> Column:
        """As :meth:`like`; small and capital letters match each other."""
        return _of("ilike", self, other)

    def rlike(self, other: str) -> Column:
        """A part matches the regular expression. Only patterns that mean the same in Java and here."""
        return _of("rlike", self, other)

    def startswith(self, other: Any) -> Column:
        return _of("startswith", self, other)

    def endswith(self, other: Any) -> Column:
        return _of("endswith", self, other)

    def contains(self, other: Any) -> Column:
        return _of("contains", self, other)

    def substr(self, startPos: Any, length: Any) -> Column:  # noqa: N803
        """``length`` characters from ``startPos`` on, the first one being 1; a negative one counts from the end."""
        return _of("substr", self, startPos, length)

    def bitwiseAND(self, other: Any) -> Column:  # noqa: N802
        return _of("&", self, other)

    def bitwiseOR(self, other: Any) -> Column:  # noqa: N802
        return _of("|", self, other)

    def bitwiseXOR(self, other: Any) -> Column:  # noqa: N802
        return _of("^", self, other)

    def cast(self, dataType: Any) -> Column:  # noqa: N803
        """Converts to another type: a name of Spark's DDL or an Arrow type. A value that does not fit is an error."""
        type_ = dataType if isinstance(dataType, pa.DataType) else _named_type(dataType)
        return Column(Expr("UnresolvedCast", {"child": self.tree}, sparks_type(type_)))

    astype = cast

    def alias(self, alias: str) -> Column:
        """Under this name: ``select((F.col("n") + 1).alias("m"))``."""
        if not isinstance(alias, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"alias() wants a name, not {alias!r}.")
        return Column(Expr("Alias", {"child": self.tree, "name": alias}))

    name = alias

    def asc(self) -> Column:
        """Ascending, nulls first, where a step orders by it."""
        return Column(Expr("SortOrder", {"child": self.tree, "ascending": True}))

    def desc(self) -> Column:
        """Descending, nulls last, where a step orders by it."""
        return Column(Expr("SortOrder", {"child": self.tree, "ascending": False}))

    asc_nulls_first, desc_nulls_last = asc, desc

    def transform(self, f: Callable[[Column], Column]) -> Column:
        """``f`` of this column."""
        return f(self)

    def getField(self, name: str) -> Column:  # noqa: N802
        """A field of a struct."""
        return self[name]

    def getItem(self, key: Any) -> Column:  # noqa: N802
        """A value of an array by its place from 0, or of a map by its key."""
        return self[key]

    def when(self, condition: Any, value: Any) -> Column:
        """Adds a branch to ``F.when(...)``."""
        return Column(call("when", *self._branches("when"), column(condition).tree, column(value).tree))

    def otherwise(self, value: Any) -> Column:
        """The value of all rows that no branch of ``F.when(...)`` takes."""
        return Column(call("when", *self._branches("otherwise"), column(value).tree))

    def _branches(self, step: str) -> list[Expr]:
        tree = self.tree
        if tree.cls != "UnresolvedFunction" or tree["name"] != "when":
            raise UsageError(f"{step}() follows F.when(...), and not {self}.")
        if len(tree["arguments"]) % 2:
            raise UsageError("when() comes before otherwise()." if step == "when" else "otherwise() is given twice.")
        return tree["arguments"]

    def __str__(self) -> str:
        return shortened(text_of(self.tree))

    def __repr__(self) -> str:
        return f"Column<{self}>"

    # --- for steps ---

    @property
    def plain_name(self) -> str | None:
        """The column that it merely names."""
        tree = self.tree
        return tree["name"] if tree.cls == "UnresolvedAttribute" else None


def column(value: Any) -> Column:
    """A Column as it is, an Arrow expression as one, anything else as a constant."""
    if isinstance(value, Column):
        return value
    return Column(Expr("Arrow", {"expression": value}) if isinstance(value, pc.Expression) else literal(value))


def named(name: str) -> Column:
    return Column(attribute(name))


def _of(function: str, *given: Any) -> Column:
    return Column(call(function, *(column(one).tree for one in given)))


def _named_type(to: str) -> pa.DataType:
    try:
        return parse_ddl(f"c {to}").field(0).type
    except UsageError as error:
        raise UsageError(f"cast({to!r}): there is no such type.", hint=error.hint) from None
