"""Random expressions of arrays, structs and maps, and aggregates of random groups, held to Spark.

``python tests/sql_nested_kit.py expressions|groups|windows SEED ROUNDS`` prints what a longer run finds.
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
from pathlib import Path

import duckdb
import pyarrow as pa

import sql_expressions_kit as plain_kit
from firesteel.plan.expr import Unsupported, same, walk
from firesteel.plan.relation import Names
from firesteel.plan.types import arrow_type, engine_type
from firesteel.render.expressions.grouping import Grouping, WholeGroups
from firesteel.render.expressions.translator import Expressions
from firesteel.render.expressions.windows import function_text
from firesteel.sql.plans.catalyst import read_plan
from sql_expressions_grammar import DATES, DOUBLES, TEXTS, D, Expressing
from sql_expressions_grammar import table as plain_table
from sql_plans_kit import version

KINDS = {
    "ai": pa.list_(pa.int32()),
    "al": pa.list_(pa.int64()),
    "ad": pa.list_(pa.float64()),
    "at": pa.list_(pa.string()),
    "ay": pa.list_(pa.date32()),
    "ac": pa.list_(pa.decimal128(9, 2)),
    "aai": pa.list_(pa.list_(pa.int32())),
    "s": pa.struct([("a", pa.int32()), ("b", pa.string()), ("c", pa.list_(pa.int32()))]),
    "as": pa.list_(pa.struct([("a", pa.int32()), ("b", pa.string())])),
    "mi": pa.map_(pa.string(), pa.int32()),
    "mt": pa.map_(pa.int32(), pa.string()),
}
_LISTS = ("ai", "al", "ad", "at", "ay", "ac")
_VALUE = {"ai": "int", "al": "long", "ad": "double", "at": "string", "ay": "date", "ac": "dec9"}
_PLACE = "{int}" if version() == "4.3" else "nullif({int}, -2147483648)"
"""Before Spark 4.3 ``element_at`` of the least integer reads past the array, which ends the JVM."""
GRAMMAR: dict[str, list[str]] = {
    "bool": [f"array_contains({{{a}}}, {{{v}}})" for a, v in _VALUE.items()]
    + [f"arrays_overlap({{{a}}}, {{{a}}})" for a in _LISTS]
    + [f"({{{kind}}} IS NULL)" for kind in KINDS]
    + ["exists({ai}, x -> x > {int})", "forall({ai}, x -> x > {int})", "exists({at}, x -> x IS NULL)", "forall({ad}, x -> isnan(x))"]
    + ["map_contains_key({mi}, {string})", "exists({aai}, x -> exists(x, y -> y = {int}))", "({int} > 1)", "({int} <=> {int})"],
    "int": [f"size({{{kind}}})" for kind in KINDS if kind != "s"]
    + ["{ai}[{int}]", f"element_at({{ai}}, {_PLACE})", f"try_element_at({{ai}}, {_PLACE})", "get({ai}, {int})", "{s}.a", "{s}.c[0]", "{aai}[0][1]"] * 2
    + ["array_min({ai})", "array_max({ai})", "{mi}[{string}]", "element_at({mi}, {string})", "{as}[0].a", "get({as}, 1).a", "({int} + 1)"]
    + ["aggregate({ai}, 0, (a, x) -> a + coalesce(x, 1))", "aggregate({ai}, {int}, (a, x) -> a + x, a -> a * 2)", "array_size({ai})"]
    + ["aggregate({at}, 0, (a, x) -> a + length(x))", "coalesce({int}, {int})", "if({bool}, {int}, {int})", "cardinality({mt})", "named_struct('p', {int}, 'q', {ai}).p"],
    "long": ["array_max({al})", "array_min({al})", "{al}[{int}]", "aggregate({ai}, 0L, (a, x) -> a + x)"]
    + [f"array_position({{{a}}}, {{{v}}})" for a, v in _VALUE.items()],
    "double": ["array_max({ad})", "array_min({ad})", "{ad}[0]", "get({ad}, {int})", "aggregate({ad}, 0D, (a, x) -> greatest(a, x))", "aggregate({ad}, 0D, (a, x) -> a + x)"],
    "date": ["array_max({ay})", "array_min({ay})", "{ay}[1]", "element_at({ay}, -1)"],
    "string": ["array_max({at})", "array_min({at})", "array_join({at}, ',')", "array_join({at}, '-', 'null')", "array_join({at}, {string}, {string})", "concat_ws(',', {string}, {at})", "concat_ws('', {at}, {at})", "{s}.b", "{mt}[{int}]",
        "element_at({mt}, {int})", "{at}[0]", f"element_at({{at}}, {_PLACE})", "{as}[0].b", "aggregate({at}, '', (a, x) -> a || x)", "array_max(map_keys({mi}))", "({string} || {string})"],
    **{
        a: [
            f"array({{{v}}}, {{{v}}})", f"array_distinct({{{a}}})", f"array_union({{{a}}}, {{{a}}})", f"array_intersect({{{a}}}, {{{a}}})", f"array_except({{{a}}}, {{{a}}})",
            f"sort_array({{{a}}})", f"sort_array({{{a}}}, false)", f"array_sort({{{a}}})", f"slice({{{a}}}, {{int}}, {{int}})", f"slice({{{a}}}, 1, 2)", f"slice({{{a}}}, -2, 2)",
            f"reverse({{{a}}})", f"concat({{{a}}}, {{{a}}})", f"array_remove({{{a}}}, {{{v}}})", f"array_repeat({{{v}}}, 2)", f"array_append({{{a}}}, {{{v}}})", f"array_insert({{{a}}}, {{int}} % 6, {{{v}}})", f"array_insert({{{a}}}, -2, {{{v}}})", f"array_prepend({{{a}}}, {{{v}}})",
            f"array_compact({{{a}}})", f"filter({{{a}}}, x -> x IS NOT NULL)", f"filter({{{a}}}, (x, i) -> i > 0)", f"if({{bool}}, {{{a}}}, {{{a}}})", f"coalesce({{{a}}}, {{{a}}})",
        ]
        for a, v in _VALUE.items()
    },
}  # fmt: skip
GRAMMAR["ai"] += [
    "flatten({aai})",
    "transform({ai}, x -> x + 1)",
    "transform({ai}, (x, i) -> x * i + {int})",
    "sequence({int}, {int})",
    "sequence({int}, {int}, {int})",
    "sequence(1, {int}, 2)",
    "{s}.c",
    "{aai}[{int}]",
    "map_values({mi})",
    "map_keys({mt})",
    "zip_with({ai}, {ai}, (x, y) -> x + y)",
    "transform({at}, x -> length(x))",
    "{as}.a",
    "array(1, NULL, 3)",
    "transform({aai}, x -> size(x))",
]
GRAMMAR["at"] += [
    "split({string}, 'a')",
    "split({string}, ' ')",
    "split({string}, '[ab]')",
    r"split({string}, '\\\\|')",
    r"split({string}, '\\\\d+')",
    "split({string}, 'B|x')",
    "map_values({mt})",
    "map_keys({mi})",
    "transform({ai}, x -> CAST(x AS STRING))",
    "{as}.b",
    "split({string}, ',', -1)",
    "transform({at}, (x, i) -> x || {string})",
    "split({string}, '')",
    "split({string}, 'a|')",
    "array('a', NULL, 'é')",
]
GRAMMAR["ay"] += [
    "sequence({date}, {date})",
    "sequence({date}, {date}, INTERVAL '3' DAY)",
    "transform({ay}, x -> date_add(x, 1))",
    "sequence({date}, date_add({date}, 5))",
    "sequence({date}, {date}, INTERVAL '1' MONTH)",
]
GRAMMAR["ai"] += ["CAST({al} AS ARRAY<INT>)", "CAST({at} AS ARRAY<INT>)", "CAST({ad} AS ARRAY<INT>)"]
GRAMMAR["al"] += ["CAST({ai} AS ARRAY<BIGINT>)"]
GRAMMAR["at"] += ["CAST({ai} AS ARRAY<STRING>)", "CAST({ay} AS ARRAY<STRING>)"]
GRAMMAR["ad"] += ["CAST({ai} AS ARRAY<DOUBLE>)", "CAST({ac} AS ARRAY<DOUBLE>)"]
GRAMMAR["ad"] += [
    "transform({ad}, x -> x / 2)",
    "transform({ai}, x -> CAST(x AS DOUBLE))",
    "array(1.5D, CAST('NaN' AS DOUBLE))",
]
GRAMMAR["aai"] = [
    "array({ai}, {ai})",
    "transform({aai}, x -> filter(x, y -> y > 0))",
    "reverse({aai})",
    "concat({aai}, {aai})",
    "slice({aai}, 1, 1)",
    "transform({ai}, x -> array(x, {int}))",
    "array_append({aai}, {ai})",
]
GRAMMAR["aai"] += [f"{f}({{aai}}, {{aai}})" for f in ("array_union", "array_except", "array_intersect")]
GRAMMAR["aai"] += ["array_distinct({aai})", "array_remove({aai}, {ai})", "sort_array({aai})", "array_sort({aai})"]
GRAMMAR["bool"] += ["array_contains({aai}, {ai})", "arrays_overlap({aai}, {aai})", "array_contains({as}, {as}[0])"]
GRAMMAR["long"] += ["array_position({aai}, {ai})", "array_position({as}, {as}[0])"]
GRAMMAR["ai"] += ["array_max({aai})", "array_min({aai})"]
GRAMMAR["string"] += ["array_max({as}).b", "array_min({as}).b"]
GRAMMAR["s"] = [
    "named_struct('a', {int}, 'b', {string}, 'c', {ai})",
    "if({bool}, {s}, {s})",
    "coalesce({s}, {s})",
    "named_struct('a', {int}, 'b', 'x', 'c', array(1))",
]
GRAMMAR["as"] = [
    "array(named_struct('a', {int}, 'b', {string}))",
    "reverse({as})",
    "arrays_zip({ai} AS a, {at} AS b)",
    "filter({as}, x -> x.a > 0)",
    "transform({as}, x -> named_struct('a', x.a, 'b', x.b))",
    "arrays_zip({ai}, {at})",
    "sort_array(transform({ai}, x -> named_struct('a', coalesce(x, 0), 'b', '-')))",
    "sort_array({as})",
    "sort_array({as}, false)",
    "array_sort({as})",
    "map_entries({mt})",
]
GRAMMAR["as"] += ["CAST(arrays_zip({al} AS p, {ai} AS q) AS ARRAY<STRUCT<a: INT, b: STRING>>)"]
GRAMMAR["aai"] += ["CAST(array({al}, {al}) AS ARRAY<ARRAY<INT>>)"]
GRAMMAR["s"] += ["CAST(named_struct('x', {long}, 'y', {int}, 'z', {al}) AS STRUCT<a: INT, b: STRING, c: ARRAY<INT>>)"]
GRAMMAR["mi"] = [
    "map({string}, {int})",
    "map('a', {int}, 'b', {int})",
    "map_from_arrays({at}, {ai})",
    "map_from_arrays(array_distinct({at}), {ai})",
    "map_filter({mi}, (k, v) -> v > 0)",
    "transform_values({mi}, (k, v) -> v + 1)",
    "transform_keys({mi}, (k, v) -> k || 'x')",
    "map_zip_with({mi}, {mi}, (k, a, b) -> coalesce(a, b, length(k)))",
    "map_concat({mi}, {mi})",
    "map_concat({mi}, map('zz', 1))",
    "map_from_entries(array(named_struct('k', {string}, 'v', {int})))",
    "map('a', 1, 'ß', NULL)",
    "str_to_map({string})",
]
GRAMMAR["mt"] = [
    "map({int}, {string})",
    "map_from_arrays({ai}, {at})",
    "map_filter({mt}, (k, v) -> k > 0)",
    "transform_values({mt}, (k, v) -> v || k)",
    "map_from_entries({as})",
    "map_concat({mt}, {mt})",
]
UNPRUNED = ("spark.sql.optimizer.nestedSchemaPruning.enabled", "spark.sql.optimizer.expression.nestedPruning.enabled")
"""Else Spark takes fields out of structs where it reads them, and the engine has whole ones."""
ANY = (*KINDS, "bool", "int", "long", "double", "date", "string")


def table(rows: int, seed: int, moments: tuple[int, ...] = ()) -> pa.Table:
    """The plain columns, and two of each nested kind: nulls, empty ones, nulls inside, short lists of edges."""
    rng = random.Random(seed)
    values = {
        "int": lambda: rng.choice([None, 0, 1, -1, 2, 3, 5, 2**31 - 1, -(2**31), rng.randint(-9, 9)]),
        "long": lambda: rng.choice([None, 0, 1, -1, 2**63 - 1, -(2**63), rng.randint(-9, 9)]),
        "double": lambda: rng.choice([None, *DOUBLES, 0.5, 0.25, -3.5]),
        "string": lambda: rng.choice([None, *TEXTS]),
        "date": lambda: rng.choice([None, *DATES]),
        "dec9": lambda: rng.choice([None, D("0.00"), D("9999999.99"), D("-9999999.99"), D("0.01"), D("1.50")]),
    }

    def some(make, most=4):
        def made():
            return (
                None if (x := rng.random()) < 0.1 else [] if x < 0.2 else [make() for _ in range(rng.randint(1, most))]
            )

        return made

    def of(make):
        return lambda: None if rng.random() < 0.15 else make()

    def entries(keys, value):
        return of(lambda: [(key, value()) for key in rng.sample(keys, rng.randint(0, 3))])

    ints = some(values["int"])
    pair = of(lambda: {"a": values["int"](), "b": values["string"]()})
    makes = {a: some(values[v]) for a, v in _VALUE.items()}
    makes |= {"aai": some(ints, 3), "s": of(lambda: {"a": values["int"](), "b": values["string"](), "c": ints()})}
    makes |= {
        "as": some(pair, 3),
        "mi": entries(["", "a", "b", "ß", "x"], values["int"]),
        "mt": entries([0, 1, -1, 2, 2**31 - 1], values["string"]),
    }
    columns = {
        f"{kind}{i}": pa.array([make() for _ in range(rows)], KINDS[kind])
        for kind, make in makes.items()
        for i in (1, 2)
    }
    for i in (1, 2):
        columns[f"dec9{i}"] = pa.array([values["dec9"]() for _ in range(rows)], pa.decimal128(9, 2))
        columns[f"int{i}"] = pa.array([values["int"]() for _ in range(rows)], pa.int32())
    plain = plain_table(rows, seed, moments)
    columns |= {
        name: plain.column(name)
        for name in plain.column_names
        if name[:-1] in ("long", "double", "string", "bool", "date")
    }
    return pa.table(columns)


AGGREGATES = [
    *(f"{name}({{{kind}}})" for name in ("bit_and", "bit_or", "bit_xor") for kind in ("int", "long")),
    *(f"{name}({{{kind}}}, row)" for name in ("max_by", "min_by") for kind in ("int", "string", "ai", "s", "mi", "double")),
    *(f"percentile({{{kind}}}, {share})" for kind in ("int", "long", "dec9", "double") for share in ("0.5", "0.3", "array(0D, 0.25, 1D)")),
    *(f"percentile_approx({{{kind}}}, {share})" for kind in ("int", "long", "dec9", "double", "date") for share in ("0.5", "array(0D, 0.3, 0.99999, 1D), 900")),
    *(f"{name}(CAST({{int}} % 100 AS DOUBLE), CAST(row AS DOUBLE))" for name in ("regr_count", "regr_avgx")),
    *(f"sort_array({name}({{{kind}}}))" for name in ("collect_list", "collect_set") for kind in ("int", "long", "string", "date", "bool", "dec9")),
    "sort_array(collect_list({double}))", "size(collect_list({ai}))", "size(collect_set({string}))", "array_contains(collect_list({int}), 1)",
    "sort_array(collect_list(struct({int}, {string}, row)), false)", "array_sort(collect_list({int}))", "array_max(collect_list({long}))", "array_min(collect_set({date}))",
    "sort_array(collect_list(DISTINCT {int}))", "size(collect_set({int}))", "sort_array(collect_list({int}) FILTER (WHERE {bool}))", "sort_array(collect_set({aai}))",
    "listagg({string}, ',') WITHIN GROUP (ORDER BY {string})", "median({int})", "median({int}) FILTER (WHERE {bool})", "max_by({int}, row) FILTER (WHERE {bool})",
    "try_sum({int})", "try_sum({long})", "try_avg({dec9})", "bool_and({bool})", "bool_or({bool})", "count_if({bool})", "some({int} > 0)", "sum(size({ai}))", "count({s})", "count(DISTINCT {int})", "count(DISTINCT {ai})",
    "max({ai})", "min({s})", "first({int})", "collect_list({int})", "max(aggregate({ai}, 0L, (a, x) -> a + coalesce(x, 0)))", "named_struct('a', max({int}), 'b', count(*))",
    "array(min({int}), max({int}))", "transform(sort_array(collect_list({int})), x -> coalesce(x, 0) % 7)",
]  # fmt: skip
_PLACES = ["{order}, row", "{order} DESC, row", "{order} NULLS LAST, row DESC", "row"]
_FRAMES = [
    "",
    "ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    "ROWS BETWEEN 3 PRECEDING AND 2 PRECEDING",
]
WINDOWS = [
    *(f"{name}({{{kind}}}{rest}){nulls}" for name in ("lag", "lead") for kind in ("int", "string", "ai") for rest in ("", ", 2", ", 0", ", -1") for nulls in ("", " IGNORE NULLS")),
    "lag({int}, 1, 7)", "lead({string}, 3, 'z')", "lag({int}, 2, {int})", "ntile(3)", "ntile(50)", "cume_dist()", "percent_rank()", "rank()", "dense_rank()", "row_number()",
]  # fmt: skip
FRAMED = [
    *(f"{name}({{{kind}}}){nulls}" for name in ("first", "last") for kind in ("int", "string", "s") for nulls in ("", " IGNORE NULLS")),
    "nth_value({int}, 2)", "nth_value({string}, 2) IGNORE NULLS", "nth_value({ai}, 1)", "bit_or({int})", "max_by({int}, row)", "count({ai})", "max({string})",
]  # fmt: skip
RANGES = [
    "RANGE BETWEEN 3 PRECEDING AND 2 FOLLOWING",
    "RANGE BETWEEN 2 FOLLOWING AND 4 FOLLOWING",
    "RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING",
    "RANGE BETWEEN CURRENT ROW AND 5 FOLLOWING",
]


def expressions(spark, home: Path, seed: int, rounds: int, rows: int = 400) -> plain_kit.Tally:
    """Scalar expressions."""
    kit = kit_of(spark, home, seed, rows)
    return plain_kit.run(kit, seed, rounds, grammar=GRAMMAR, kinds=ANY)


def kit_of(spark, home: Path, seed: int, rows: int) -> plain_kit.Kit:
    for name in UNPRUNED:
        spark.conf.set(name, "false")
    kit = plain_kit.Kit(spark, home, rows, seed, columns=table)
    kit.frame.createOrReplaceTempView("edges")
    return kit


def groups(kit: plain_kit.Kit, seed: int, rounds: int, tally: plain_kit.Tally) -> None:
    """Every aggregate in each round, by random groups, at once and in parts."""
    rng = random.Random(seed)
    express = Expressing(rng, 0.1, GRAMMAR, ANY)
    for i in range(rounds):
        by = rng.choice(["row % 7", "row % 60", "bool1", "string1", "0", "least(row, 300)"])
        texts = [express.filled(template, i % 2 + 1) for template in AGGREGATES]
        _compared(kit, [f"SELECT {by} AS row, {{}} AS v FROM edges GROUP BY {by}"], texts, _aggregated, tally)


def windows(kit: plain_kit.Kit, seed: int, rounds: int, tally: plain_kit.Tally) -> None:
    rng = random.Random(seed)
    express = Expressing(rng, 0.1, GRAMMAR, ANY)
    for _ in range(rounds):
        texts = []
        for template in (*WINDOWS, *FRAMED, *RANGES):
            order = rng.choice(_PLACES).format(order=rng.choice(["int1", "string2", "date1"]))
            frame = rng.choice(_FRAMES) if template in FRAMED else ""
            function = express.filled(template, 1)
            if template in RANGES:
                function, order, frame = (
                    f"count({express.grown('ai', 0)})",
                    rng.choice(["row", "row DESC", "date1", "date2 DESC NULLS LAST"]),
                    template,
                )
            texts.append(
                f"{function} OVER (PARTITION BY {rng.choice(['bool1', 'string1', 'date2'])} ORDER BY {order} {frame})"
            )
        _compared(kit, ["SELECT row, {} AS v FROM edges"], texts, _windowed, tally)


def _compared(kit, query, texts, ours, tally):
    for text in texts:
        tally.expressions += 1
        try:
            frame = kit.spark.sql(query[0].format(text))
            root = read_plan(frame).root
        except Exception:  # Spark refuses it, or fails while it folds constants
            tally.refused["Spark itself"] += 1
            continue
        try:
            found = ours(kit, root)
        except Unsupported as reason:
            tally.refused[str(reason)] += 1
            continue
        tally.taken += 1
        tally.classes.update(node.cls for node in walk(root))
        try:
            answers = [kit.engine.sql(sql).to_arrow_table() for sql, _ in found]
        except duckdb.Error:
            tally.left += 1
            tally.always_left[text] += 1
            continue
        try:
            theirs = frame.toArrow()
        except Exception as error:
            tally.wrong.append(f"{text}: Spark raises {str(error).splitlines()[0][:150]}")
            continue
        b = rows_of(theirs)
        for answer, (sql, kind) in zip(answers, found, strict=True):
            a = rows_of(answer.cast(pa.schema([theirs.schema.field(0), pa.field("v", arrow_type(kind))])))
            tally.values += len(a)
            if len(a) != len(b) or not all(near(x, y) for x, y in zip(a, b, strict=True)):
                tally.wrong.append(
                    f"{query[0].format(text)}: {[(x, y) for x, y in zip(a, b, strict=False) if not near(x, y)][:2]} {sql}"
                )


def rows_of(values: pa.Table) -> list[list[object]]:
    columns = (plain_kit.number(column).to_pylist() for column in values.columns)
    return sorted(map(list, zip(*columns, strict=True)), key=repr)


def near(a: object, b: object) -> bool:
    """The same, numbers of statistics to 9 digits."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(near, a, b))
    return plain_kit.same(a, b) or (
        isinstance(a, float) and isinstance(b, float) and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    )


def _aggregated(kit, root):
    """(text, type) of the aggregation at once and in parts, where it has them."""
    assert root.cls == "Aggregate", root.cls
    below, columns = kit._below(root["child"])
    group, (key, item) = root["groupingExpressions"], root["aggregateExpressions"]
    if {node.id for node in walk(item) if node.cls == "AttributeReference"} - columns:
        raise Unsupported("common expressions")
    by = Expressions().text(group[0]) if group else "0"
    texts = []
    for parted in (False, True):
        grouping = Grouping(Names(), Expressions(), {same(one): "fs_key" for one in group}, parted=parted)
        try:
            behind = Expressions(grouping.given)
            final = f"CAST({behind.text(item)} AS {engine_type(item.type)})"
            name = behind.text(key) if group else "0"
        except WholeGroups:
            continue
        rows = f"SELECT *, {by} AS fs_key FROM ({below})"
        if parted:
            partial = ", ".join(
                f"CAST({text} AS {engine_type(kind)}) AS {column}" for column, (text, kind) in grouping.partial.items()
            )
            rows = f"SELECT fs_key, {partial} FROM (SELECT *, random() * 3 // 1 AS fs_part FROM ({rows})) GROUP BY fs_key, fs_part"
        texts.append((f"SELECT {name} AS row, {final} AS v FROM ({rows}) GROUP BY fs_key", item.type))
    return texts


def _windowed(kit, root):
    while root.cls == "Project":
        root = root["child"]
    if root.cls != "Window" or len(root["windowExpressions"]) != 1:
        raise Unsupported(f"{root.cls} in place of a window")
    below, columns = kit._below(root["child"])
    item = root["windowExpressions"][0]
    if {node.id for node in walk(item) if node.cls == "AttributeReference"} - columns:
        raise Unsupported("common expressions")
    keys = tuple(part.id for part in root["partitionSpec"])
    x = Expressions(lambda part: function_text(part, keys))
    row = next(node.id for node in walk(root) if node.cls == "AttributeReference" and node["name"] == "row")
    return [
        (
            f"SELECT {row} AS row, CAST({x.text(item)} AS {engine_type(item.type)}) AS v FROM ({below})",
            item.type,
        )
    ]


def main() -> None:
    spark = plain_kit.session()
    what, (seed, rounds) = sys.argv[1], (int(text) for text in sys.argv[2:4])
    tally = plain_kit.Tally()
    with tempfile.TemporaryDirectory() as directory:
        if what == "expressions":
            tally = expressions(spark, Path(directory), seed, rounds)
        else:
            {"groups": groups, "windows": windows}[what](kit_of(spark, Path(directory), seed, 400), seed, rounds, tally)
        print(plain_kit.report(tally))


if __name__ == "__main__":
    main()
