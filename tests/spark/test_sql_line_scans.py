"""CSV, JSON, text and ORC in SQL: what is written plainly is read by our own tasks, all else by Spark, and the rows are Spark's."""

from __future__ import annotations

import gzip
import random

import pytest

from sql_plans_kit import version
from sql_scans_kit import assert_as_spark, assert_equal, assert_left_to_spark, kind, sources

pytestmark = pytest.mark.spark

PLAIN_CSV = {
    "quotes and nulls": ('1,a,\n2,,x\n\n,"q,r",y\n,,\n3,"x",z', "a int, b string, c string", {}),
    "header": ("h1,h2\n1,a\n2,b", "a int, b string", {"header": "true"}),
    "header behind empty lines": ("\n\nh1,h2\r\n1,a\r\n2,b\r", "a int, b string", {"header": "true"}),
    "only a header": ("h1,h2\n", "a int, b string", {"header": "true"}),
    "byte order mark": ("\ufeff1,a\n", "a int, b string", {}),
    "mark before a header": ("\ufeffa,b\n1,a\n", "a int, b string", {"header": "true"}),
    "escapes and another null": ("1,a\\b\n2,NA\n,NA\n,\n", "a int, b string", {"nullValue": "NA"}),
    "bars": ('1|a,b\n2|"x|y"\n', "a int, b string", {"sep": "|"}),
    "tabs": ("1\ta b \n2\t c\n", "a int, b string", {"delimiter": "\t"}),
    "zeros in front": ("007,-0\n", "a int, b double", {}),
    "blanks and hashes": ("#1, a \n #2,'b'\n", "a string, b string", {}),
    "one column": ("a\n\nb\n", "a string", {}),
    "every type": (
        "1.5,1e30,1.25,true,2024-02-29,2024-01-01 01:02:03.5,1\n-2,1E-5,-0.5,false,0001-01-01,0001-01-01T00:00:00,-128\n"
        "0.1,3.4028236,99.99,,9999-12-31,9999-12-31 23:59:59.999999,\n1e-99,16777217,00,true,1582-10-10,1969-12-31 23:59:59.1,127",
        "a double, b float, c decimal(4,2), d boolean, e date, f timestamp, g tinyint",
        {},
    ),
    "times without a zone": ("2024-01-01 01:02:03\n1500-01-01T00:00:00.123456", "a timestamp_ntz", {}),
}
ODD_CSV = {
    "too few and too many": ("1,a\n2\n3,b,c\n", "a int, b string"),
    "quotes of nothing": ('1,""\n', "a int, b string"),
    "quotes twice": ('1,"a""b"\n', "a int, b string"),
    "a quote inside": ('1,a"b\n', "a int, b string"),
    "blanks behind a quote": ('1,"a" \n', "a int, b string"),
    "quotes over lines": ('1,"a\nb"\n', "a int, b string"),
    "escaped quote": ('1,"a\\"b"\n', "a int, b string"),
    "no number": ("x,a\n", "a int, b string"),
    "plus": ("+5,a\n", "a int, b string"),
    "blank before a number": (" 5,a\n", "a int, b string"),
    "too large": ("99999999999,a\n", "a int, b string"),
    "a line of blanks": ("1,a\n   \n2,b\n", "a int, b string"),
    "not UTF-8": (b"1,\xff\n", "a int, b string"),
    "short day": ("1,2024-2-9\n", "a int, b date"),
    "no day": ("1,2023-02-30\n", "a int, b date"),
    "two signs": ("--1,a\n", "a int, b string"),
    "a day with a time": ("1,2024-02-09 01:02:03\n", "a int, b date"),
    "a time without seconds": ("1,2024-02-09 01:02\n", "a int, b timestamp"),
    "a zone": ("1,2024-02-09T01:02:03+01:00\n", "a int, b timestamp"),
    "too many digits": ("1,123.456\n", "a int, b decimal(5,2)"),
    "commas in a number": ('1,"1,5"\n', "a int, b decimal(5,2)"),
    "capitals": ("1,TRUE\n", "a int, b boolean"),
    "infinity": ("1,Infinity\n2,NaN\n3,-Inf\n4,1e999\n", "a int, b double"),
    "hexadecimal": ("1,0x1p3\n2,1d\n", "a int, b double"),
}
PLAIN_JSON = {
    "some": ('{"a":1,"b":"x","z":[1]}\n\n{"b":null}\r\n{"b":"\\u00e4\\n\\ud83d\\ude00","a":-5}', "a bigint, b string"),
    "doubles": ('{"a":1.5,"b":true}\n{"a":3,"b":false}\n{"a":12345678901234567890}\n{"a":1e22}', "a double, b boolean"),
    "days": (
        '{"a":"2024-02-29","b":"2024-01-01 01:02:03.25"}\n{"a":"0001-01-01","b":"1500-01-01T00:00:00"}',
        "a date, b timestamp",
    ),
    "mark": ('\ufeff{"a":1}\n', "a int"),
    "long texts": ('{"a":"' + "ä" * 60_000 + '","b":1}\n', "a string"),
    "names": ('{"\\u0061":"\\u0000x"}\n{"A":"y","b":1}\n', "a string"),
    "structs": (
        '{"s":{"a":1,"b":"x","c":{"d":true}}}\n{"s":null}\n{"s":{}}\n{}\n{"s":{"c":{"d":null},"z":[1],"B":2}}\n',
        "s struct<a: smallint, b: string, c: struct<d: boolean>>",
    ),
    "lists": (
        '{"l":[1,null,-3],"m":[{"d":"2024-02-29","x":1.5},null,{}],"n":[["a",null],[],null]}\n{"l":[],"m":null}\n{"n":[],"m":[{"x":2,"d":null}]}\n',
        "l array<int>, m array<struct<d: date, x: double>>, n array<array<string>>",
    ),
    "times inside": (
        '{"s":{"t":["2024-01-01 01:02:03",null]}}\n{"s":{"t":[]}}\n',
        "s struct<t: array<timestamp>>",
    ),
}
if version() == "3.5":  # says what the parser of Spark 2 would have made of it
    del ODD_CSV["no day"]
ODD_JSON = {
    "minus zero": ('{"a":-0}\n{"a":-0.0}\n', "a double"),
    "two in a line": ('{"a":1} {"a":2}\n', "a int"),
    "twice": ('{"a":1,"a":2}\n', "a int"),
    "a text": ('{"a":1}\n{"a":"x"}\n', "a int"),
    "a number as text": ('{"a":1}\n', "a string"),
    "an exponent as text": ('{"a":1e2}\n{"a":1.50}\n', "a string"),
    "a text longer than Jackson takes": ('{"a":"' + "x" * 20_000_001 + '"}\n{"a":"y"}\n', "a string"),
    "a name longer than Jackson takes": ('{"a":"x","' + "n" * 50_001 + '":1}\n{"a":"y"}\n', "a string"),
    "a fraction": ('{"a":1.0}\n', "a int"),
    "a list": ('{"a":1}\n[{"a":2}]\n', "a int"),
    "nonsense": ('{"a":1}\nnonsense\n', "a int"),
    "an object": ('{"a":{"b":1}}\n', "a string"),
    "single quotes": ("{'a':'x'}\n", "a string"),
    "no numbers": ('{"a":NaN}\n{"a":1e999}\n', "a double"),
    "no numbers elsewhere": ('{"a":1,"z":Inf}\n{"a":2}\n', "a int"),
    "long numbers elsewhere": ('{"a":1,"z":' + "9" * 1001 + "}\n", "a int"),
    "deep": ('{"a":1,"z":' + "[" * 1001 + "]" * 1001 + "}\n", "a int"),
    "not UTF-8": (b'{"a":"\xff"}\n', "a string"),
    "a tab": ('{"a":"tab\there"}\n', "a string"),
    "too large": ('{"a":300}\n', "a tinyint"),
    "short day": ('{"a":"2024-2-9"}\n', "a date"),
    "half a pair": ('{"a":"\\ud800"}\n', "a string"),
    "blanks": (' {"a":1}\n', "a int"),
    "a comma": ('{"a":1,}\n', "a int"),
    "over lines": ('{"a":\n1}\n', "a int"),
    "a text inside": ('{"s":{"a":1}}\n{"s":{"a":"x"}}\n', "s struct<a: int>"),
    "a list as a struct": ('{"s":{"a":1}}\n{"s":[{"a":2}]}\n', "s struct<a: int>"),
    "a struct as a list": ('{"s":[{"a":1}]}\n{"s":{"a":2}}\n', "s array<struct<a: int>>"),
    "twice inside": ('{"s":{"a":1,"a":2}}\n', "s struct<a: int>"),
    "a number inside as text": ('{"l":["x",1]}\n', "l array<string>"),
    "minus zero inside": ('{"l":[{"x":1.5},{"x":-0.0}]}\n', "l array<struct<x: double>>"),
    "too large inside": ('{"l":[1,300]}\n', "l array<tinyint>"),
    "short day inside": ('{"s":{"d":"2024-2-9"}}\n', "s struct<d: date>"),
}


def written(folder, text, name):
    folder.mkdir()
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(folder)


def assert_spark_computes(env, frame):
    """In the end: our tasks met something that is not plain."""
    stream = env.from_dataframe(frame)
    assert kind(stream).startswith("sql("), stream.explain()
    with pytest.warns(UserWarning, match="Spark computes the DataFrame itself now"):
        ours = stream.to_arrow()
    assert_equal(ours, frame.toArrow())


@pytest.mark.parametrize(
    "case", [c if c == "every type" else pytest.param(c, marks=pytest.mark.full) for c in PLAIN_CSV]
)
def test_plain_csv(spark, env, tmp_path, case):
    text, schema, options = PLAIN_CSV[case]
    assert_as_spark(env, spark.read.schema(schema).options(**options).csv(written(tmp_path / "f", text, "a.csv")))


@pytest.mark.full
@pytest.mark.parametrize("case", ODD_CSV)
def test_odd_csv(spark, env, tmp_path, case):
    text, schema = ODD_CSV[case]
    assert_spark_computes(env, spark.read.schema(schema).csv(written(tmp_path / "f", text, "a.csv")))


@pytest.mark.full
@pytest.mark.parametrize("case", PLAIN_JSON)
def test_plain_json(spark, env, tmp_path, case):
    text, schema = PLAIN_JSON[case]
    assert_as_spark(env, spark.read.schema(schema).json(written(tmp_path / "f", text, "a.json")))


@pytest.mark.full
@pytest.mark.parametrize("case", ODD_JSON)
def test_odd_json(spark, env, tmp_path, case):
    text, schema = ODD_JSON[case]
    assert_spark_computes(env, spark.read.schema(schema).json(written(tmp_path / "f", text, "a.json")))


@pytest.mark.full
def test_numbers_are_the_nearest(spark, env, tmp_path):
    """Of texts with more digits than numbers have."""
    chance = random.Random(7)
    texts = [f"{chance.choice(['', '-'])}{chance.randrange(10 ** chance.randrange(1, 15))}" for _ in range(4000)]
    texts = [f"{t}.{chance.randrange(10**14)}" if chance.random() < 0.8 else t for t in texts]
    texts = [f"{t}e{chance.randrange(-50, 20)}" if chance.random() < 0.5 else t for t in texts]
    lines = [(t, t if t[0] != "-" or float(t) else "1") for t in texts]
    home = written(tmp_path / "c", "\n".join(f"{a},{b}" for a, b in lines), "a.csv")
    assert_as_spark(env, spark.read.schema("a double, b float").csv(home))
    home = written(tmp_path / "j", "\n".join(f'{{"a":{float(b)!r}}}' for _, b in lines if float(b)), "a.json")
    assert_as_spark(env, spark.read.schema("a double").json(home))


@pytest.mark.full
def test_large_files_in_pieces(spark, env, tmp_path):
    table = spark.sql(
        "SELECT id AS a, concat('x', id % 97) AS b, id / 8 AS c, date_add(DATE'2000-01-01', CAST(id % 9999 AS INT)) AS d FROM range(200000)"
    )
    for kind_ in ("csv", "json"):
        table.repartition(2).write.option("header", "true").format(kind_).save(str(tmp_path / kind_))
        options = {"header": "true"} if kind_ == "csv" else {}
        frame = spark.read.schema(table.schema).options(**options).format(kind_).load(str(tmp_path / kind_))
        stream = assert_as_spark(env, frame.groupBy("b").sum("a", "c"))
        assert len(sources(stream)[0].list_splits(1 << 20)) > 2
        assert_as_spark(env, frame.filter("a % 10000 = 7"))
        assert_as_spark(env, frame.groupBy().count())


@pytest.mark.full
def test_types_that_spark_guessed(spark, env, tmp_path):
    home = written(tmp_path / "c", "n,s,d,t,x\n1,a,2024-01-01,2024-01-01 10:00:00,1.5\n2,,2024-01-02,,\n", "a.csv")
    assert_as_spark(env, spark.read.option("header", "true").option("inferSchema", "true").csv(home))
    home = written(tmp_path / "j", '{"a":1,"b":1.5,"c":"x","d":true,"e":[1]}\n{"a":null}\n', "a.json")
    assert_as_spark(env, spark.read.json(home).select("a", "b", "c", "d"))


@pytest.mark.full
def test_partitions_and_gzip(spark, env, tmp_path):
    for p in (1, 2):
        folder = tmp_path / f"t/p={p}"
        folder.mkdir(parents=True)
        (folder / "a.csv.gz").write_bytes(gzip.compress(f"{p},x\n".encode()))
    frame = spark.read.schema("a int, b string, p int").csv(str(tmp_path / "t"))
    assert_as_spark(env, frame)
    stream = assert_as_spark(env, frame.filter("p = 2"))
    assert [len(split.payload) for split in sources(stream)[0].list_splits(1 << 20)] == [1]
    assert_as_spark(env, frame.groupBy("p").count())


@pytest.mark.full
def test_lines_of_text(spark, env, tmp_path):
    home = written(tmp_path / "t", "a\r\nb\n\n\u00e4\rc", "a.txt")
    assert_as_spark(env, spark.read.text(home))
    assert_as_spark(env, spark.read.text(home).filter("value LIKE '%c%'"))
    assert_as_spark(env, spark.read.text(home).groupBy().count())


OPTIONS = [
    {"multiLine": "true"},
    {"dateFormat": "yyyy"},
    {"encoding": "iso-8859-1"},
    {"comment": "#"},
    {"ignoreLeadingWhiteSpace": "true"},
    {"sep": "||"},
    {"quote": "'"},
    {"escape": "'"},
    {"emptyValue": "x"},
    {"lineSep": ";"},
    {"columnNameOfCorruptRecord": "b"},
]


@pytest.mark.full
@pytest.mark.parametrize("options", OPTIONS, ids=[next(iter(o)) for o in OPTIONS])
def test_other_options_are_sparks(spark, env, tmp_path, options):
    home = written(tmp_path / "f", "1,a\n", "a.csv")
    assert_left_to_spark(env, spark.read.schema("a int, b string").options(**options).csv(home), "Spark's own")


@pytest.mark.full
def test_other_modes_and_zones(spark, env, tmp_path):
    home = written(tmp_path / "f", "1,a\nx,b\n", "a.csv")
    assert_spark_computes(env, spark.read.schema("a int, b string").option("mode", "DROPMALFORMED").csv(home))
    corrupt = spark.read.schema("a int, b string, _corrupt_record string").csv(home)
    assert_left_to_spark(env, corrupt, "is Spark's own")
    home = written(tmp_path / "t", "2024-01-01 00:00:00\n", "a.csv")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Vienna")
    try:
        frame = spark.read.schema("t timestamp").csv(home)
        stream = env.from_dataframe(frame)
        assert "whose zone is not UTC" in stream.explain()
    finally:
        spark.conf.unset("spark.sql.session.timeZone")


# --- ORC -------------------------------------------------------------------------------------------------------------

ORC = """
    SELECT id AS a, CAST(id AS INT) AS b, CAST(id AS SMALLINT) AS c, CAST(id AS TINYINT) AS d, id / 3 AS e,
      CAST(id / 3 AS FLOAT) AS f, CAST(id / 7 AS DECIMAL(10,3)) AS g, CAST(id AS DECIMAL(38,0)) AS h,
      if(id % 5 = 0, NULL, concat('s', id)) AS i, id % 2 = 0 AS j, date_add(DATE'2020-01-01', CAST(id AS INT)) AS k,
      CAST(concat('x', id) AS BINARY) AS l, if(id % 3 = 0, CAST('NaN' AS DOUBLE), -0.0D) AS m, CAST(id % 3 AS INT) AS p
    FROM range(100)"""


@pytest.mark.full
def test_orc(spark, env, tmp_path):
    spark.sql(ORC).write.partitionBy("p").orc(str(tmp_path / "o"))
    frame = spark.read.orc(str(tmp_path / "o"))
    assert_as_spark(env, frame)
    assert_as_spark(env, frame.filter("p = 1 AND a > 5").select("b", "p"))
    assert_as_spark(env, frame.groupBy("p").count())
    assert_as_spark(env, frame.groupBy().count())


@pytest.mark.full
def test_orc_that_is_sparks(spark, env, tmp_path):
    spark.sql("SELECT DATE'1500-01-01' AS a, array(named_struct('d', DATE'1500-01-01')) AS s").write.orc(
        str(tmp_path / "d")
    )
    for column in ("a", "s"):
        assert_spark_computes(env, spark.read.orc(str(tmp_path / "d")).select(column))
    spark.sql("SELECT TIMESTAMP'2024-01-01 00:00:00' AS a, 1 AS b").write.orc(str(tmp_path / "t"))
    assert_left_to_spark(env, spark.read.orc(str(tmp_path / "t")), "timestamps of ORC")
    assert_as_spark(env, spark.read.orc(str(tmp_path / "t")).select("b"))
    assert_left_to_spark(env, spark.read.schema("b int, c int").orc(str(tmp_path / "t")), "lacks the column c")
    assert_left_to_spark(env, spark.read.schema("b bigint").orc(str(tmp_path / "t")), "is int32 in a file")
