"""Schemas of classes, and rows that are instances of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, NotRequired, Optional, TypedDict

import pyarrow as pa
import pytest

from firesteel import ExecutionEnvironment
from firesteel.api.ddl import to_schema
from firesteel.errors import UsageError


@dataclass
class Point:
    x: float
    y: float = 0.0


class Money(NamedTuple):
    amount: int
    currency: str


class Order(TypedDict):
    id: Annotated[int, "bigint NOT NULL"]
    name: str
    paid: bool
    raw: bytes
    weight: float
    day: date
    at: datetime
    wall: Annotated[datetime, "timestamp_ntz"]
    daily: time
    took: timedelta
    price: Annotated[Decimal, "decimal(10, 2)"]
    small: Annotated[int, pa.int16(), "a note"]
    note: Optional[str]  # noqa: UP045
    tag: str | None
    kind: Literal["a", "b"]
    words: list[str]
    also: Sequence[Annotated[int, "int"]]
    counts: dict[str, int]
    other: Mapping[str, list[int]]
    point: Point
    points: list[Point]
    money: NotRequired[Money]


DDL = """id bigint NOT NULL, name string, paid boolean, raw binary, weight double, day date, at timestamp, wall timestamp_ntz,
daily time, took interval day to second, price decimal(10, 2), small smallint, note string, tag string, kind string, words array<string>,
also array<int>, counts map<string, bigint>, other map<string, array<bigint>>, point struct<x: double, y: double>,
points array<struct<x: double, y: double>>, money struct<amount: bigint, currency: string>"""


def test_a_class_is_the_schema_that_its_ddl_is():
    assert to_schema(Order).equals(to_schema(DDL))


@dataclass
class Base:
    a: int
    count: ClassVar[int] = 0


@dataclass
class Derived(Base):
    b: str = field(default="")


def test_inherited_fields_come_first_and_class_variables_are_none():
    assert to_schema(Derived).equals(to_schema("a bigint, b string"))
    assert to_schema(TypedDict("Odd", {"a b": int, "class": str})).names == ["a b", "class"]


def test_types_agree_with_what_pyspark_infers():
    from pyspark.sql.types import StructType, _infer_schema

    values = {"n": 1, "x": 1.0, "s": "a", "b": True, "raw": b"a", "day": date(2024, 1, 1), "at": datetime(2024, 1, 1)}
    hints = {name: type(value) for name, value in values.items()}
    theirs = to_schema(StructType(_infer_schema(values).fields))
    ours = to_schema(TypedDict("Plain", hints))
    assert {field.name: field for field in ours} == {field.name: field for field in theirs}


@dataclass
class Node:
    children: list[Node]


class Unknown(TypedDict):
    a: Missing  # noqa: F821


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        (Decimal, r"The field Made\.price of type Decimal has no column type\. Say how many digits it has: Annot"),
        (int | str, r"The field Made\.price of type int \| str has no column type\. Name its type in DDL"),
        (list, r"The field Made\.price of type list has no column type\. Say of what: list\[str\]"),
        (dict, r"of type dict has no column type\. Say of what: dict\[str, int\]"),
        (list[complex], r"The field Made\.price of type complex has no"),
        (Any, r"The field Made\.price of type Any has no"),
        (Literal["a", 1], r"of type Literal\['a', 1\] has no"),
        (Annotated[int, "bigin"], r"The field Made\.price: .*no type 'bigin'\. Did you mean 'bigint'"),
        (Annotated[int, "int, b int"], r"The field Made\.price: 'int, b int' is not one type"),
        (list[Node], r"The class Node has itself among its fields"),
    ],
)
def test_a_field_without_a_column_type_is_named(hint, said):
    with pytest.raises(UsageError, match=said):
        to_schema(TypedDict("Made", {"id": int, "price": hint}))


def test_wrong_classes_are_told():
    with pytest.raises(
        UsageError, match="The class Unknown is annotated with 'Missing', which is no name in its module"
    ):
        to_schema(Unknown)
    with pytest.raises(UsageError, match="dataclass or NamedTuple, not the class int"):
        to_schema(int)
    with pytest.raises(UsageError, match="needs at least one column"):
        to_schema(TypedDict("Empty", {}))


# --- rows ---


@dataclass(frozen=True, slots=True)
class Sale:
    id: int
    at: Point | None
    prices: list[Money]
    by_day: dict[str, Point]


SALE = {
    "id": 1,
    "at": {"x": 1.0, "y": 2.0},
    "prices": [{"amount": 3, "currency": "EUR"}],
    "by_day": {"mo": {"x": 0.0, "y": 0.0}},
}


def test_functions_may_return_instances_and_collections_hold_them():
    env = ExecutionEnvironment()
    numbers = env.from_collection([{"n": 1}])

    def sale(row) -> Sale:
        return Sale(row.n, Point(1.0, 2.0), [Money(3, "EUR")], {"mo": Point(0.0)})

    assert numbers.map(sale, Sale).test_with() == [SALE]
    assert numbers.flat_map(lambda row: [sale(row)] * 2, Sale).test_with() == [SALE, SALE]
    assert env.from_collection([Sale(1, Point(1.0, 2.0), [Money(3, "EUR")], {"mo": Point(0.0)})], Sale).test_with() == [
        SALE
    ]
    assert env.from_collection([Point(1.0), Point(2.0)]).test_with() == [{"x": 1.0, "y": 0.0}, {"x": 2.0, "y": 0.0}]
    assert env.from_collection([], Sale).test_with([Sale(1, None, [], {}), Sale(2, None, [], {})])[1]["id"] == 2
    assert numbers.map(lambda row: Money(row.n, "EUR"), Money).test_with() == [{"amount": 1, "currency": "EUR"}]


class Where(TypedDict):
    point: Point


def test_an_instance_may_be_the_value_of_the_only_column():
    numbers = ExecutionEnvironment().from_collection([{"n": 1}])
    assert numbers.map(lambda row: Point(1.0), Where).test_with() == [{"point": {"x": 1.0, "y": 0.0}}]
    assert numbers.map(lambda row: {"point": Point(1.0)}, Where).test_with() == [{"point": {"x": 1.0, "y": 0.0}}]


def test_an_instance_of_other_fields_is_told():
    numbers = ExecutionEnvironment().from_collection([{"n": 1}])
    with pytest.raises(Exception, match=r"returned columns x, y where id, at, prices, by_day are declared"):
        numbers.map(lambda row: Point(1.0), Sale).test_with()
    with pytest.raises(Exception, match=r"it has no field x, y"):
        numbers.map(lambda row: Sale(1, None, [Point(1.0)], {}), Sale).test_with()
    with pytest.raises(Exception, match=r"Point\(x=1.0, y=0.0\) \(a Point\) for column 'id'"):
        numbers.map(lambda row: Sale(Point(1.0), None, [], {}), Sale).test_with()


def test_times_are_kept():
    at = datetime(2024, 1, 1, 12, tzinfo=UTC)
    numbers = ExecutionEnvironment().from_collection([{"n": 1}])
    made = numbers.map(lambda row: {"at": at}, TypedDict("At", {"at": datetime})).test_with()
    assert made == [{"at": at}]
