"""Columns of edge values and random SQL expressions over them, for the kit that holds the engine's answers to Spark's."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import math
import random
import re

import pyarrow as pa

D = decimal.Decimal
DECIMALS = {"d5": (5, 2), "d9": (9, 0), "d18": (18, 4), "d38": (38, 10), "e38": (38, 0), "d20": (20, 20)}
INTEGERS = {"byte": 7, "short": 15, "int": 31, "long": 63}
TEXTS = [
    "",
    " ",
    "  x ",
    "a",
    "A",
    "ab",
    "aB%_",
    "%",
    "_",
    "\\",
    "x\ny",
    "ab\n",
    '[x] $1 "ab"',
    "\t",
    "0",
    "-0",
    "1",
    " 12 ",
    "1.5",
    "1e3",
    "NaN",
    "inf",
    "true",
    "2024-02-29",
    "2023-02-29",
    "1-1-1",
    "2024-02-29 23:59:60",
    "ß",
    "ẞ",
    "İ",
    "é",
    "é",
    "😀",
    "a😀b",
    "ǅ",
    "ﬀ",
    "Σς",
    "x" * 300,
    "日本語",
    "\x7f",
    "\uffff",
    "'",
    '"',
    "12345678901234567890",
    "0.1e-400",
    "+5",
    "1L",
    "1_0",
    "٣",
]
DATES = [
    dt.date(*d)
    for d in (
        (1, 1, 1),
        (4, 2, 29),
        (1582, 10, 4),
        (1582, 10, 5),
        (1582, 10, 15),
        (1900, 2, 28),
        (1969, 12, 31),
        (1970, 1, 1),
        (2000, 2, 29),
    )
]
DATES += [dt.date(2024, 2, 29), dt.date(2024, 12, 30), dt.date(2023, 1, 1), dt.date(9999, 12, 31)]
TIMES = [
    0,
    -1,
    1,
    999_999,
    -62135596800 * 10**6,
    253402300799 * 10**6 + 999_999,
    1709251199 * 10**6,
    1483228799 * 10**6 + 999_999,
    -(2**63),
    -(2**63) + 2,
    2**63 - 2,
    -2208988800 * 10**6,
    4102444800 * 10**6 - 1,
]
DOUBLES = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    0.1,
    2.5,
    3.5,
    1e15,
    123456789.125,
    1e300,
    -1e300,
    5e-324,
    2.0**53 - 1,
    2.0**53,
    2.0**63,
    0.5,
    math.nan,
    math.inf,
    -math.inf,
]

LEAVES = {
    "byte": ["1Y", "-128Y", "127Y", "0Y"],
    "short": ["3S", "-32768S", "32766S", "32767S"],
    "int": ["0", "1", "-7", "-2147483648", "2147483646", "2147483647"],
    "long": ["0L", "2L", "-3L", "-9223372036854775808L", "9007199254740993L", "9223372036854775807L"],
    "float": ["CAST(1.5 AS FLOAT)", "-0.0F"],
    "double": [
        "0D",
        "-0.0D",
        "1.5D",
        "-2D",
        "9007199254740991D",
        "CAST('NaN' AS DOUBLE)",
        "CAST('-Infinity' AS DOUBLE)",
    ],
    "dec": ["1.5BD", "0.01BD", "0.5BD", "-2.5BD", "128BD", "-99999.99BD", "3BD", "12345678901234567890.5BD"],
    "string": ["'a'", "''", "'ab'", "'Straße'", "' '", "'%'"],
    "date": ["DATE'2024-02-29'", "DATE'1582-10-15'", "DATE'0001-01-01'", "DATE'9999-12-31'"],
    "bool": ["true", "false"],
    "ntz": ["TIMESTAMP_NTZ'2024-02-29 12:34:56.789'"],
    "ts": ["TIMESTAMP'2024-02-29 12:34:56.789Z'"],
    "binary": ["X'00FF'", "X''", "X'61'"],
    "dt": [
        "INTERVAL '1 02:03:04.5' DAY TO SECOND",
        "({ts} - {ts})",
        "INTERVAL '-3' DAY",
        "INTERVAL '0' SECOND",
        "INTERVAL '25' HOUR",
    ],
    "ym": ["INTERVAL '1-2' YEAR TO MONTH", "INTERVAL '-1' MONTH", "make_ym_interval({byte}, {byte})"],
}
"""Constants. ``TRUE`` and such occur, too, where Spark folds an expression."""

ANY = ("byte", "short", "int", "long", "float", "double", "dec", "string", "date", "bool", "ntz", "ts", "binary")
NUMBERS = ("byte", "short", "int", "long", "float", "double", "dec")
SAME = {
    kind: [
        f"CASE WHEN {{bool}} THEN {{{kind}}} WHEN {{bool}} THEN {{{kind}}} ELSE {{{kind}}} END",
        f"CASE WHEN {{bool}} THEN {{{kind}}} END",
        f"if({{bool}}, {{{kind}}}, {{{kind}}})",
        f"coalesce({{{kind}}}, {{{kind}}})",
        f"nullif({{{kind}}}, {{{kind}}})",
        f"nvl2({{{kind}}}, {{{kind}}}, {{{kind}}})",
        f"greatest({{{kind}}}, {{{kind}}})",
        f"least({{{kind}}}, {{{kind}}}, {{{kind}}})",
    ]
    for kind in ANY
}
ARITHMETIC = {
    kind: [f"({{{kind}}} {sign} {{{kind}}})" for sign in "+-*%"]
    + [f"(- {{{kind}}})", f"abs({{{kind}}})", f"pmod({{{kind}}}, {{{kind}}})"]
    for kind in NUMBERS
}
BITS = {kind: [f"({{{kind}}} {sign} {{{kind}}})" for sign in "&|^"] + [f"(~{{{kind}}})"] for kind in INTEGERS}
CASTS = {
    kind: [f"CAST({{{other}}} AS {name})" for other in ANY if other != kind]
    for kind, name in {
        **{"byte": "TINYINT", "short": "SMALLINT", "int": "INT", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE", "string": "STRING"},
        **{"date": "DATE", "bool": "BOOLEAN", "ntz": "TIMESTAMP_NTZ", "ts": "TIMESTAMP"},
    }.items()
}  # fmt: skip
GRAMMAR: dict[str, list[str]] = {
    "bool": [f"({{{kind}}} {sign} {{{kind}}})" for kind in ANY for sign in ("=", "<", ">", "<=", ">=", "<=>", "<>")]
    + ["({bool} AND {bool})", "({bool} OR {bool})", "(NOT {bool})"] * 6
    + [f"({{{kind}}} IS NULL)" for kind in ANY]
    + [f"({{{kind}}} IN ({{{kind}}}, {{{kind}}}))" for kind in ANY]
    + ["isnan({double})", "({long} BETWEEN {long} AND {long})", "({int} IN (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144))"]
    + ["({string} IN ('a', 'b', '', 'x', 'A', 'ab', 'é', 'ß', '1', '0', ' ', NULL))"]
    + [f"({{string}} LIKE '{p}')" for p in ("a%", "%a", "%b%", "_", "%", "a_", "", "x%y", "%ß%", "__")]
    + ["({string} LIKE 'aB|%|_' ESCAPE '|')", "({string} LIKE '%|%%' ESCAPE '|')", r"({string} LIKE '%\\\\%')", "({string} LIKE '_|_%' ESCAPE '|')"]
    + ["startswith({string}, {string})", "endswith({string}, {string})", "contains({string}, {string})"] * 3
    + ["({string} RLIKE '^a')", "({string} RLIKE '[0-9]+$')", "({string} RLIKE 'a.*b')", "({string} RLIKE '(a|b){2,3}')", r"({string} RLIKE '^\\\\w+$')", "({string} ILIKE 'A%')"]
    + ["({string} LIKE {string})", "({string} LIKE concat('%', {string}))"]
    + [rf"({{string}} RLIKE '{p}')" for p in (r"\\[x\\]", r"\\$\\d", '\\"', r"\\t", r"\\bab\\b", r"^\\S+$", r"[^\\s@]+\\W", r"\\pL+x", r"(?s)x.y", r"[\\]\\[]", "é{1,2}$")],
    "int": ["length({string})", "year({date})", "month({date})", "day({date})", "quarter({date})", "datediff({date}, {date})"] * 2
    + ["dayofweek({date})", "weekday({date})", "dayofyear({date})", "weekofyear({date})", "year({ntz})", "hour({ntz})", "minute({ntz})"]
    + ["second({ntz})", "month({ts})", "hour({ts})", "instr({string}, {string})", "locate({string}, {string})", "ascii({string})"]
    + ["({int} >> 3)", "shiftleft({int}, 2)", "sign({int})", "octet_length({string})", "bit_count({long})", "unix_date({date})"]
    + ["regexp_count({string}, '[a-b]')", "levenshtein({string}, {string})", "levenshtein({string}, {string}, 2)", "try_cast({long} AS INT)", "try_cast({dec} AS INT)"],
    "long": ["({long} >> 5)", "({long} div {long})", "ceil({double})", "floor({double})", "ceil({long})", "floor({long})", "round({long}, 0)", "unix_micros({ts})", "try_cast({string} AS BIGINT)", "try_add({long}, {long})", "try_multiply({long}, {long})", "try_cast({double} AS BIGINT)"],
    "double": ["try_divide({double}, {double})", "try_divide({long}, {int})", "nanvl({double}, {double})"]
    + ["({double} / {double})", "({long} / {long})", "sqrt({double})", "round({double}, 2)", "signum({double})"] * 2
    + ["ceil({double})", "exp({double})", "ln({double})", "pow({double}, {double})", "sin({double})", "log10({double})", "cbrt({double})"]
    + [f"{f}({{double}})" for f in ("log2", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "sinh", "cosh", "tanh")] + ["log({double}, {double})", "atan2({double}, {double})"]
    + [f"pow({{double}}, {n})" for n in (0, 1, 2, -1, 0.5)],
    "float": ["({float} + {float})"],
    "dec": [f"CAST({{{kind}}} AS DECIMAL({p},{s}))" for kind in ANY for p, s in ((7, 2), (38, 18), (18, 0), (38, 0))]
    + ["({dec} / {dec})", "({dec} + {int})", "({dec} * {long})"] * 5
    + ["round({dec}, 1)", "round({dec}, -2)", "ceil({dec})", "floor({dec})", "bround({dec}, 1)", "round({dec})"] * 2,
    "string": ["({string} || {string})", "concat({string}, {string}, {string})", "upper({string})", "lower({string})", "trim({string})"] * 2
    + ["ltrim({string})", "rtrim({string})", "substring({string}, 2, 3)", "substring({string}, 1)", "substring({string}, -2, 5)"]
    + ["substring({string}, 0, 2)", "left({string}, 2)", "right({string}, 2)", "substring({string}, {int}, {int})", "reverse({string})"]
    + ["replace({string}, {string}, {string})", "replace({string}, 'a', 'bb')", "lpad({string}, 5, 'xy')", "rpad({string}, 3)"]
    + ["repeat({string}, 3)", "concat_ws('-', {string}, {string})", "initcap({string})", "translate({string}, 'ab', 'xy')"]
    + ["regexp_substr({string}, 'a+')", "split_part({string}, 'a', 1)", "regexp_replace({string}, '[0-9]', '#')", "regexp_extract({string}, '(a)(b)?', 1)"]
    + ["regexp_extract({string}, '(a+?)(.*)', 2)", "regexp_extract({string}, '^[^a]*(x|ab)*', 1)", "regexp_extract({string}, '[a-b]+', 0)"]
    + ["trim('x' FROM {string})", "date_format({date}, 'yyyy-MM')", "date_format({ntz}, 'HH:mm:ss')", "md5({binary})", "hex({long})"]
    + ["substring_index({string}, 'a', 1)", "overlay({string} PLACING 'zz' FROM 2)", "chr({long})", "format_string('%d', {int})"],
    "date": ["date_add({date}, {int})", "date_sub({date}, 3)", "date_add({date}, 40)", "trunc({date}, 'MM')", "last_day({date})", "add_months({date}, 3)", "add_months({date}, {int})", "make_date({int}, {int}, {int})", "next_day({date}, 'MO')", "({date} + INTERVAL '2' DAY)", "({date} - INTERVAL '1' MONTH)", "trunc({date}, 'YEAR')", "date_from_unix_date({int})"],
    "ntz": ["({ntz} + INTERVAL '2' HOUR)", "date_trunc('HOUR', {ntz})", "({ntz} - INTERVAL '1' MONTH)"],
    "ts": ["({ts} + INTERVAL '2' HOUR)", "date_trunc('DAY', {ts})", "timestamp_micros({long})", "timestamp_seconds({long})"],
}  # fmt: skip
TIMES_OF_ZONES = {
    "int": [f"{part}({{ts}})" for part in ("year", "quarter", "day", "dayofweek", "weekday", "dayofyear", "weekofyear", "hour", "minute", "second")]
    + ["extract(yearofweek FROM {date})", "extract(day FROM ({ts} - {ts}))", "extract(year FROM make_ym_interval({byte}, {int}))", "datediff({ts}, {ts})", "extract(week FROM {ts})"],
    "byte": ["extract(hour FROM ({ts} - {ts}))", "extract(minute FROM ({ntz} - {ntz}))", "extract(month FROM make_ym_interval({byte}, {byte}))"],
    "long": ["unix_timestamp({ts})", "unix_timestamp({date})", "unix_timestamp({string}, 'yyyy-MM-dd HH:mm:ss')", "unix_seconds({ts})", "unix_millis({ts})"]
    + [f"timestampdiff({unit}, {{ts}}, {{ts}})" for unit in ("SECOND", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")]
    + ["to_unix_timestamp({string}, 'yyyy-MM-dd')", "timestampdiff(MONTH, {ntz}, {ntz})", "CAST(({ts} - {ts}) AS BIGINT)", "CAST(({date} - {date}) AS BIGINT)", "unix_timestamp({ntz})"],
    "double": ["months_between({ts}, {ts})", "months_between({date}, {date})", "months_between({ts}, {date})"],
    "dec": ["extract(second FROM {ts})", "extract(second FROM ({ts} - {ts}))", "extract(second FROM {ntz})"],
    "bool": ["({dt} < {dt})", "({dt} = {dt})", "({dt} >= INTERVAL '1' DAY)", "({ym} > {ym})", "({ts} IN ({ts}, TIMESTAMP'2024-02-29 12:34:56.789Z'))", "({ts} BETWEEN {ts} AND {ts})", "({dt} <=> {dt})", "(({date} - {date}) > {dt})", "(({dt} * {byte}) > {dt})", "(({dt} / {int}) < {dt})", "(({ym} * {byte}) > {ym})", "(({ym} / {byte}) <= {ym})", "(make_dt_interval({byte}, {short}, {byte}, {dec}) > {dt})", "((- ({ts} - {ts})) < abs({ts} - {ts}))", "({dt} BETWEEN INTERVAL '0' HOUR AND INTERVAL '36:00' HOUR TO MINUTE)", "(CAST({byte} AS INTERVAL HOUR TO SECOND) > {dt})", "(CAST({long} AS INTERVAL DAY) < {dt})", "(CAST({int} AS INTERVAL MINUTE) <= {dt})", "(CAST({int} AS INTERVAL YEAR) > {ym})", "(CAST({short} AS INTERVAL MONTH) = {ym})"],
    "string": [f"date_format({{ts}}, '{p}')" for p in ("yyyy-MM-dd HH:mm:ss", "yyyyMMdd", "yyyy-MM-dd\\'T\\'HH:mm:ss.SSS", "EEE, d MMM yyyy", "hh:mm a", "MMMM yy", "EEEE H:m:s", "DDD", "yyyy-MM-dd HH:mm:ss.SSSSSS")]
    + [f"date_format({{ts}}, '{p}')" for p in ("G GG GGG GGGG y yyy yyyyy yyyyyy", "q qq qqq qqqq Q QQ QQQ QQQQ", "L LL LLL LLLL E EE D", "DD", "k kk K KK h", "S SS SSSS SSSSS SSSSSSS SSSSSSSS SSSSSSSSS", "VV", "X XX XXX XXXX XXXXX", "x xx xxx xxxx xxxxx", "Z ZZ ZZZ ZZZZ ZZZZZ", "O OOOO", "[yyyy][-MM]|%é", "\'it\'\'s [G]\' \'\'", "")]
    + ["from_unixtime({int}, 'yyyy G K XXX')"]
    + ["CAST({dt} AS STRING)", "CAST({ym} AS STRING)", "date_format({date}, 'yyyy/MM/dd')", "from_unixtime({long})", "from_unixtime({long}, 'yyyy-MM-dd')", "monthname({date})", "dayname({date})"]
    + ["from_unixtime(CAST({int} AS BIGINT) * 3600)"],
    "date": ["to_date({string})", "to_date({string}, 'yyyy-MM-dd')", "to_date({string}, 'yyyyMMdd')", "to_date({ts})", "date({ts})"]
    + [f"next_day({{date}}, '{day}')" for day in ("MO", "sunday", "Thu")]
    + ["make_date({int}, {int}, {int})", "make_date(2024, month({date}), 31)", "trunc({ts}, 'MM')", "trunc({date}, 'WEEK')", "trunc({date}, 'QUARTER')", "try_add({date}, {int})", "({date} + {ym})", "({date} - {ym})", "timestampadd(DAY, {byte}, {date})"],
    "ts": [f"date_trunc('{unit}', {{ts}})" for unit in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")]
    + [f"timestampadd({unit}, {{short}}, {{ts}})" for unit in ("MICROSECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")]
    + ["to_timestamp({string})", "to_timestamp({string}, 'yyyy-MM-dd HH:mm:ss')", "to_timestamp({string}, 'yyyy-MM-dd')", "to_timestamp({string}, 'yyyy-MM-dd\\'T\\'HH:mm:ss')"]
    + [f"{f}_utc_timestamp({{ts}}, '{zone}')" for f in ("from", "to") for zone in ("Asia/Kolkata", "America/New_York", "+02:00", "Europe/Berlin")]
    + ["({ts} + {dt})", "({ts} - {dt})", "({ts} + {ym})", "({ts} - {ym})", "({date} + {dt})", "({ts} + INTERVAL 1 DAY)", "({ts} + INTERVAL 1 MONTH)", "timestamp_millis({long})", "timestamp_seconds({int})"]
    + ["make_timestamp({int}, {int}, {int}, {int}, {int}, {dec})", "make_timestamp(2024, 3, 31, {byte}, 30, 15.5)", "window({ts}, '5 minutes').start", "window({ts}, '1 hour', '1 hour', '10 minutes').end", "window({ts}, '1 day').start", "timestamp({date})", "timestamp({string})"]
    + ["coalesce({ts}, {ts})", "try_to_timestamp({string}, 'yyyy-MM-dd HH:mm:ss')"],
    "ntz": ["({ntz} + {dt})", "({ntz} - {dt})", "({ntz} + {ym})", "convert_timezone('Asia/Kolkata', 'America/New_York', {ntz})", "convert_timezone('Europe/Berlin', {ntz})", "to_timestamp_ntz({string})", "make_timestamp_ntz({int}, {int}, {int}, {int}, {int}, {dec})", "timestampadd(MONTH, {byte}, {ntz})", "timestampadd(HOUR, {short}, {ntz})"],
    "dt": ["({ts} - {ts})", "({ntz} - {ntz})", "({date} - {date})", "({dt} + {dt})", "({dt} - {dt})", "(- {dt})", "abs({dt})", "({dt} * {byte})", "({dt} / {int})", "make_dt_interval({int}, {byte}, {short}, {dec})"],
    "ym": ["({ym} + {ym})", "(- {ym})", "({ym} * {byte})", "({ym} / {int})", "make_ym_interval({byte}, {short})"],
}  # fmt: skip
_OF_SPARK_2 = (
    "G GGGG y yy yyy yyyyy",
    "M MM MMM MMMM MMMMM",
    "L LLL LLLL",
    "E EEE EEEE u uu F",
    "d ddd D DDDD",
    "H HHH h hh k kk K KK",
    "m mmm s sss S SS SSSSS",
    "a aa",
    "X XX XXX",
    "Z ZZZ",
    "[yyyy-MM-dd] {}#%é",
    "'it''s' ''",
    "",
)
TIMES_OF_SPARK_2 = {
    "string": [f"date_format({{ts}}, '{p}')" for p in _OF_SPARK_2] + [f"from_unixtime({{int}}, '{p}')" for p in ("yyyy-MM-dd HH:mm:ss", "yyyy.M u XX")] + ["CAST({ts} AS STRING)"],
    "date": ["CAST({string} AS DATE)", "date_add({date}, 3)", "to_date({ts})"],
    "ts": ["CAST({string} AS TIMESTAMP)", "date_trunc('DAY', {ts})"],
}  # fmt: skip
OTHERS = {
    "string": ["get_json_object({string}, '$.a')", "to_json(named_struct('a', {int}, 'b', {string}, 'c', {double}, 'd', {date}))", "to_json(named_struct('t', {ts}, 'l', {ntz}, 'f', {float}, 'y', {binary}, 'm', {dec}))", "to_json(map(coalesce({string}, ''), {bool}))", "to_json(array(map(coalesce({short}, 0S), {date})))", "from_json({string}, 'a STRING').a", "soundex({string})", "mask({string})", "({string} COLLATE UTF8_BINARY)", "mask({string}, 'Q', NULL, 'd', 'a')", "mask({string}, NULL, NULL, NULL, NULL)", "decode({binary}, 'US-ASCII')", "decode({binary}, if({bool}, 'Utf-8', 'ISO-8859-1'))", "elt({byte}, {string}, {string})", "url_encode({string})", "format_number({double}, 2)", "format_number({long}, 1)", "format_string('%s: %d %%', {string}, {int})", "date_format({ts}, if({bool}, 'yyyy', 'dd/MM/yyyy'))", "element_at(str_to_map({string}, ',', '-'), 'a')", "parse_url('https://a.b/' || {string}, 'PATH')", "parse_url('https://a.b/?q=' || {string}, 'QUERY', 'q')"] + ["split_part({string}, ',', 2)", "split_part({string}, 'ab', -1)", "substring_index({string}, ',', 2)", "substring_index({string}, '-', -1)", "split({string}, ',')[0]", "split({string}, ',')[1]", r"split({string}, '\\.')[0]", "split({string}, ' ')[2]"]
    + ["translate({string}, 'ab-', 'x')", "initcap({string})", "reverse({string})", "chr({int})", "char({byte})", "right({string}, {int})", "left({string}, {int})", "substr({string}, -3)", "substr({string}, {byte})", "substring({string}, -4, 2)"]
    + ["overlay({string} PLACING {string} FROM 2 FOR 1)", "overlay({string} PLACING 'é' FROM 3)", "base64({binary})", "base64(CAST({string} AS BINARY))", "hex({string})", "hex({binary})", "hex({int})", "bin({long})", "bin({int})", "md5({string})", "sha1({string})", "sha2({string}, 256)", "sha({binary})", "decode({binary}, 'UTF-8')", "CAST({binary} AS STRING)", "CAST(CAST({string} AS BINARY) AS STRING)"]
    + ["btrim({string})", "trim(BOTH 'ab ' FROM {string})", "trim(LEADING '0' FROM {string})", "rtrim('%_', {string})", "space({byte})", "nvl({string}, 'x')"]
    + [f"regexp_replace({{string}}, '{p}', '{r}')" for p, r in (("[0-9]+", "#"), ("a", ""), ("(a)(b)", "$2$1"), (",", ", "), ("[^a-zA-Z0-9]", ""), (r"\\s+", " "), ("^0+", ""), ("-$", "!"), ("a|b|x", "<$0>"), (".", "y"), ("é+", "e"))]
    + [r"regexp_extract({string}, '^(\\w+) (\\d*)', 2)", "regexp_extract({string}, '([^,]*),(.*)', 1)", r"regexp_extract({string}, '(\\d{4})-(\\d{2})', 2)", "regexp_extract({string}, '(.)(.)$', 1)", "regexp_extract({string}, '[^a]+', 0)"],
    "bool": [f"({{string}} RLIKE '{p}')" for p in ("^.$", "^..$", "^[^a]*$", "é", "a|é", r"^\\d+$", r"\\W", r"\\s", "[x-z]+b?", "^a.+", "(?i)ab", "^$")]
    + ["({string} ILIKE '%B%')", "({string} NOT LIKE 'a%')", "({string} LIKE 'a%b%')", "({string} LIKE ANY ('a%', '%b'))", "({string} LIKE ANY ('%a_', 'b%_b', '%é%_'))", "({string} LIKE ANY ('_a%', NULL))", "({string} NOT LIKE ALL ('_a%', '%b_%', '1%'))", "({string} NOT ILIKE ANY ('_A%', '%b_%'))", "({string} LIKE ALL ('%_%', '%a%'))", "CAST({string} AS BOOLEAN)", "isnan({float})", "({date} IN (DATE'2024-02-29', DATE'1970-01-01', NULL))", "({dec} IN (1.5, 0, 5, NULL))"]
    + ["({date} IN (DATE'2024-02-29', DATE'1970-01-01', DATE'1900-02-28', DATE'2000-02-29', DATE'2000-01-02', DATE'2000-01-03', DATE'2000-01-04', DATE'2000-01-05', DATE'2000-01-06', DATE'2000-01-07', DATE'2000-01-08'))"]
    + ["({dec} IN (1.5, 0, 5, 1, 2, 3, 4, 7, 8, 9, 10, 11))", "({ts} = {date})", "({double} IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 2.5))", "({long} IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, NULL))"],
    "int": ["hash({string}, {ts})", "hash({double}, {dec})", "hash({date}, {byte}, {binary})", "hash({float}, {ntz}, {long}, {bool}, {short})", "hash(length({string}))", "levenshtein({string}, {string})", "coalesce({int}, CAST(raise_error('none') AS INT))", "find_in_set({string}, {string})", "ascii({string})", "bit_length({string})", "position('a', {string}, 2)", "locate(',', {string}, 3)", "shiftleft({int}, {int})", "shiftright({int}, {int})", "shiftrightunsigned({int}, {int})", "({int} >>> 3)", "bit_count({int})", "bit_count({byte})", "round({int}, -1)", "bround({int}, -2)", "pmod({int}, 7)", "char_length({string})", "try_cast({string} AS INT)"],
    "byte": ["getbit({long}, {byte})", "getbit({int}, 3)", "round({byte}, -1)"],
    "short": ["round({short}, -2)"],
    "long": ["xxhash64({string}, {ts})", "xxhash64({double}, {dec})", "xxhash64({date}, {byte}, {binary})", "xxhash64({float}, {ntz}, {long}, {bool}, {short})", "xxhash64({int}, {string})", "crc32({binary})", "crc32({string})", "shiftleft({long}, {int})", "shiftright({long}, {int})", "shiftrightunsigned({long}, {int})", "factorial({int})", "round({long}, -3)", "bround({long}, -1)", "ceil({dec})", "CAST({ts} AS BIGINT)"],
    "double": ["degrees({double})", "radians({double})", "rint({double})", "pmod({double}, {double})", "CAST({ts} AS DOUBLE)", "round({double}, 0)", "try_cast({string} AS DOUBLE)"],
    "float": ["CAST({ts} AS FLOAT)", "try_cast({string} AS FLOAT)"],
    "ts": ["CAST({double} AS TIMESTAMP)", "CAST({byte} AS TIMESTAMP)", "try_cast({string} AS TIMESTAMP)", "CAST({bool} AS TIMESTAMP)"],
    "date": ["try_cast({string} AS DATE)", "to_date({string}, if({bool}, 'yyyy-MM-dd', 'yyyyMMdd'))"],
    "dec": ["pmod({dec}, {dec})", "pmod(CAST({byte} AS DECIMAL(5,2)), CAST({short} AS DECIMAL(9,3)))", "try_cast({string} AS DECIMAL(12,3))", "try_cast({string} AS DECIMAL(38,0))", "bround({dec}, 2)", "bround({dec}, 0)", "bround({dec}, -1)", "round({dec}, 2)", "round({dec}, -1)", "ceil({dec}, 1)", "floor({dec}, 2)", "floor({dec}, -1)", "ceil({double}, 2)"],
    "binary": ["unhex({string})", "unhex(hex({string}))", "unbase64({string})", "unbase64(base64({binary}))", "encode({string}, 'utf-8')", "CAST({string} AS BINARY)", "encode({string}, 'US-ASCII')", "encode({string}, if({bool}, 'utf-8', 'iso-8859-1'))"],
}  # fmt: skip
_PATTERNS = [
    r"'(a|b)+'",
    r"'^\\w+$'",
    r"'[a-b]{1,2}x?'",
    r"'\\d+(.)'",
    "'a.*b|x'",
    "'[^a-z0-9]+'",
    r"'(\\S)(\\s)'",
    r"'\\.|,'",
    "'a?b*'",
    r"'\\$|\\['",
]
_CHOSEN = [f"if({{bool}}, {a}, {b})" for a, b in itertools.pairwise(_PATTERNS)]
"""Patterns that are no constants."""
OF_COLUMNS = {
    "string": [f"{f}({{string}}, {{{n}}}, {{string}})" for f in ("lpad", "rpad") for n in ("byte", "int")] + ["lpad({string}, 5, '😀é')", "rpad({string}, {byte}, '')", "repeat({string}, {byte})", "space({int})"]
    + ["trim(BOTH {string} FROM {string})", "ltrim({string}, {string})", "rtrim({string}, {string})", "trim(BOTH '😀éß' FROM {string})", "replace({string}, '', {string})"]
    + ["split_part({string}, {string}, {byte})", "split_part({string}, '', {byte})", "split_part({string}, 'aa', {int})", "substring_index({string}, {string}, {byte})", "substring_index({string}, 'a', {int})", "substring_index({string}, 'aa', 2)", "substring_index({string}, '', 2)"]
    + ["overlay({string} PLACING {string} FROM {byte} FOR {byte})", "overlay({string} PLACING {string} FROM {int})", "overlay({string} PLACING 'zz' FROM -2 FOR {int})"]
    + ["format_number({double}, {byte})", "format_number({long}, {byte})", "concat_ws({string}, array({string}, {string}), {string})", "array_join(array({string}, {string}), {string})"]
    + ["conv({string}, 10, 16)", "conv({string}, 36, 2)", "conv({long}, 10, 36)", "url_decode({string})", "try_url_decode({string})", "url_decode(url_encode({string}))", "try_url_decode(concat('%', {string}))", "url_decode('%c3' || {string})", "try_url_decode('%C3%A9+%F0%9F%98%80' || {string})"]
    + [f"regexp_{f}" for p in _CHOSEN for f in (f"replace({{string}}, {p}, '#')", f"extract({{string}}, {p}, 1)")]
    + ["regexp_replace({string}, {string}, {string})", "regexp_replace({string}, '[0-9]+', {string})", "element_at(str_to_map({string}, {string}, '-'), 'a')", "element_at(split({string}, {string}), 1)"]
    + ["parse_url('https://u@a.b:8/c?q=' || {string} || '#r', if({bool}, 'HOST', 'QUERY'))", "try_parse_url('https://a.b/?q=1&' || {string}, 'QUERY', {string})", "parse_url('https://a.b/c?q=1', {string})", "parse_url('https://a.b/c?q=1', 'QUERY', if({bool}, 'q', {string}))"],
    "bool": [f"({{string}} RLIKE {p})" for p in _CHOSEN] + ["({string} RLIKE {string})"]
    + [f"{f}({{binary}}, {{binary}})" for f in ("contains", "startswith", "endswith")] + ["contains({binary} || {binary}, {binary})", "endswith(CAST({string} AS BINARY), CAST({string} AS BINARY))"],
    "int": ["locate({string}, {string}, {byte})", "locate('', {string}, {byte})", "locate('a', {string}, 0)", "length({binary})", "octet_length({binary})", "bit_length({binary})", "size(str_to_map({string}, ',', {string}))"]
    + [rf"regexp_instr({{string}}, {p})" for p in ("'a|b'", r"'\\d+(a|b)?'", "'b$'", "'é'", "'(?i)B'", r"if({bool}, '(a|b)+', '\\W')")] + ["regexp_count({string}, if({bool}, '[a-b]', 'x'))"],
    "double": ["atanh({double})", "expm1({double})", "log1p({double})", "expm1({double} / 1000000)", "log1p({double} / 1000000)"],
    "binary": ["lpad({binary}, {byte}, {binary})", "rpad({binary}, {byte}, {binary})", "rpad({binary}, 3, X'')", "({binary} || {binary})", "substring({binary}, {byte}, {byte})", "right({binary}, 2)", "overlay({binary} PLACING {binary} FROM {byte} FOR {byte})"],
}  # fmt: skip
for _more in (SAME, ARITHMETIC, BITS, CASTS, TIMES_OF_ZONES, OTHERS, OF_COLUMNS):
    for _kind, _texts in _more.items():
        GRAMMAR[_kind] = GRAMMAR.get(_kind, []) + _texts


def texts(rng: random.Random) -> str:
    """Letters, or what looks like a number, a day, a time, a list."""
    n = rng.randint
    day = (
        f"{n(0, 9999):04}-{n(0, 12):02}-{n(1, 31):02}"
        if rng.random() < 0.2
        else f"{n(1960, 2030)}-{n(1, 12):02}-{n(1, 29):02}"
    )
    clock = f"{n(0, 24):02}:{n(0, 59):02}:{n(0, 60):02}"
    forms = (
        lambda: "".join(rng.choices("abxAB01 é", k=n(0, 6))),
        lambda: "".join(rng.choices("ab,.-x9 ", k=n(0, 12))),
        lambda: rng.choice((day, day.replace("-", ""), day[:7], f" {day}")),
        lambda: day + rng.choice(" T") + clock + rng.choice(("", "", f".{n(0, 10**6)}", f".{n(0, 10**9)}", "Z", "+02:00", "-09:30", " UTC")),
        lambda: f"{n(1960, 2030)}-{n(1, 12)}-{n(1, 28)}" + rng.choice(("", " ", " x", "T3:4", f" {n(0, 24)}:{n(0, 60)}", f" {n(0, 23)}:{n(0, 59)}:{n(0, 59)}", f" {n(10, 23)}:{n(10, 59)}Z")),
        lambda: rng.choice(("", "-", "+")) + str(n(0, 10 ** n(1, 19))) + rng.choice(("", f".{n(0, 10**9)}", f"e{n(-330, 330)}", ".", "E5")),
        lambda: rng.choice(("true", "F", "no", "Yes", "T", "n", "1", "y ")),
        lambda: "".join(rng.choices("éßÄあ😀\u2028\u0085aZ\u0301", k=n(0, 5))),
        lambda: "".join(rng.choices("0123456789abcdefABCDEF", k=n(0, 9))),
    )  # fmt: skip
    return rng.choice(forms)()


_JSON_NUMBERS = ["0", "-0", "1", "-5", "2147483648", "9223372036854775807", "12345678901234567890", "1.0", "1.50", "0.1", "-0.0", "1e2", "0.001", "0.0001", "1e400", "12345678.5", "0.30000000000000004", "00", "1.", "NaN", "-Infinity"]  # fmt: skip
_JSON_TEXTS = ["", "a", "b c", "é", "😀", r"\n", r"\"", r"\\", r"\/", r"\u0041", r"\ud83d\ude00", r"\ud800", r"\u0000", r"\x", "x\ty", "\x01", "a, ]", ": nan", "{", "1", "true", "2024-02-29"]  # fmt: skip
JSON = ["get_json_object(j, '$.a')", "get_json_object(j, '$.c.d')", "get_json_object(j, '$.d[0]')", "get_json_object(j, '$[1].a')", "get_json_object(j, \"$['a b']\")", "get_json_object(j, '$.c')", "json_array_length(j)", "json_object_keys(j)"]  # fmt: skip
JSON += [f"from_json(j, '{schema}')" for schema in ("a INT, b STRING", "a BIGINT, c STRUCT<d: DOUBLE, e: BOOLEAN>, d ARRAY<INT>", "a STRING, c STRING", "a TINYINT, d ARRAY<STRUCT<a: INT>>")]  # fmt: skip


def documents(rows: int, seed: int, moments: tuple[int, ...] = ()) -> pa.Table:
    """JSON, mostly of the fields that ``JSON`` asks for; some of it broken."""
    rng = random.Random(seed)

    def blank() -> str:
        return rng.choice(["", "", "", " ", "\n"])

    def value(depth: int) -> str:
        kind = rng.randint(0, 6 if depth else 3)
        if kind < 2:
            return rng.choice(_JSON_NUMBERS) if kind else f'"{rng.choice(_JSON_TEXTS)}"'
        if kind < 4:
            return rng.choice(["true", "false", "null", "null", "-1", "7", "nul", "'q'"])
        if kind == 4:
            return f"[{','.join(blank() + value(depth - 1) for _ in range(rng.randint(0, 3)))}{blank()}]"
        names = rng.choices(["a", "b", "c", "d", "a b", "e", "A", r"\u0061"], k=rng.randint(0, 4))
        names = names if rng.random() < 0.2 else list(dict.fromkeys(names))
        return "{" + ",".join(f'{blank()}"{name}"{blank()}:{value(depth - 1)}' for name in names) + blank() + "}"

    def expected() -> str:
        parts = [
            f'"a": {rng.choice([0, 127, 128, 2**31, -5])}',
            f'"b":"{rng.choice(_JSON_TEXTS)}"',
            '"d": [1, null, 2 ]',
        ]
        parts += [
            f'"c":{{"d":{rng.choice(_JSON_NUMBERS)}, "e": {rng.choice(["true", "false", "null"])}}}',
            f'"x":{value(2)}',
        ]
        return f"{{{', '.join(rng.sample(parts, rng.randint(1, 5)))}}}"

    def document() -> str | None:
        text = expected() if rng.random() < 0.5 else value(3)
        at, harm = rng.randint(0, len(text)), rng.random()
        if harm < 0.05:
            return text[:at] + rng.choice([",", '"', "x", "}", "\\", "/*c*/", "\ufeff", " "]) + text[at:]
        return (
            rng.choice([None, "", " ", "null", "abc", " Bad", "not", "{a: 1}", " { x", text[:at], text + " x"])
            if harm < 0.12
            else text
        )

    return pa.table({"j": pa.array([document() for _ in range(rows)])})


def table(rows: int, seed: int, moments: tuple[int, ...] = ()) -> pa.Table:
    """Two columns of each type; a third of the values are edges, a tenth null. ``moments``: seconds about which times lie, too."""
    rng = random.Random(seed)

    def moment(offset: int = 0) -> int:
        if not moments or rng.random() < 0.4:
            return rng.randint(0, 2 * 10**15)
        near = rng.choice((3600, 7200, 86400 * 2)) * 10**6
        return (rng.choice(moments) + offset) * 10**6 + rng.choice(
            (0, -1, rng.randint(-near, near), rng.randint(-4, 4) * 900 * 10**6)
        )

    def column(edges, ordinary, kind):
        values = [
            None if (x := rng.random()) < 0.1 else rng.choice(edges) if x < 0.4 else ordinary() for _ in range(rows)
        ]
        return pa.array(values, kind)

    columns = {}
    for i in (1, 2):
        for (name, bits), kind in zip(INTEGERS.items(), (pa.int8(), pa.int16(), pa.int32(), pa.int64()), strict=True):
            edges = [0, 1, -1, 2, 7, -(2**bits), -(2**bits) + 1, 2**bits - 2, 2**bits - 1, 2 ** (bits - 1), 10, 100]
            edges += [2**53 - 1, 2**53 + 1, -(2**53) - 1] if name == "long" else []
            columns[f"{name}{i}"] = column(edges, lambda: rng.randint(-12, 40), kind)
        for name, (p, s) in DECIMALS.items():
            edges = [scaled(n, s) for n in (0, 10**p - 1, -(10**p) + 1, 1, 5, -5)]
            if p > s:
                edges += [
                    D(1),
                    D(-1),
                    D(2),
                    D(7),
                    D(128),
                    *(scaled(n, s) for n in (5 * 10 ** max(s - 1, 0), -25 * 10 ** max(s - 1, 0))),
                ]

            def some(p=p, s=s):
                return scaled(rng.randint(-(10 ** rng.randint(0, p)) + 1, 10 ** rng.randint(0, p) - 1), s)

            columns[f"dec_{name}{i}"] = column(edges, some, pa.decimal128(p, s))
        columns[f"double{i}"] = column(
            DOUBLES, lambda: rng.choice((rng.uniform(-9, 9), rng.randint(-9, 9) / 4)), pa.float64()
        )
        columns[f"float{i}"] = column(DOUBLES, lambda: rng.randint(-99, 99) / 8, pa.float32())
        columns[f"string{i}"] = column(TEXTS, lambda: texts(rng), pa.string())
        columns[f"bool{i}"] = column([True, False], lambda: rng.random() < 0.5, pa.bool_())
        columns[f"date{i}"] = column(
            DATES, lambda: dt.date(1990, 1, 1) + dt.timedelta(rng.randint(0, 20000)), pa.date32()
        )
        columns[f"ntz{i}"] = column(
            TIMES, lambda: moment(rng.choice((0, 3600, 7200, -18000, 19800))), pa.timestamp("us")
        )
        columns[f"ts{i}"] = column(TIMES, moment, pa.timestamp("us", "UTC"))
        columns[f"binary{i}"] = column(
            [b"", b"\x00", b"\xff", b"a"], lambda: bytes(rng.choices(range(256), k=3)), pa.binary()
        )
    return pa.table(columns)


def scaled(digits: int, scale: int) -> decimal.Decimal:
    return D(f"{digits}e-{scale}")


class Expressing:
    """Random SQL text. ``constants``: their share among the leaves; the others are columns. ``kinds``: those of whole trees."""

    def __init__(self, rng: random.Random, constants: float = 0.25, grammar=GRAMMAR, kinds=ANY) -> None:
        self.rng, self.constants, self.grammar, self.kinds = rng, constants, grammar, kinds

    def any(self, depth: int) -> str:
        return self.grown(self.rng.choice(self.kinds), depth)

    def grown(self, kind: str, depth: int) -> str:
        rng = self.rng
        if depth <= 0 or kind not in self.grammar or rng.random() < 0.1:
            if kind in ("dt", "ym"):  # no columns
                return self.filled(rng.choice(LEAVES[kind]), 0)
            if kind in LEAVES and rng.random() < self.constants:
                return rng.choice(LEAVES[kind])
            name = f"dec_{rng.choice(list(DECIMALS))}" if kind == "dec" else kind
            return f"{name}{rng.randint(1, 2)}"
        return self.filled(rng.choice(self.grammar[kind]), depth)

    def filled(self, template: str, depth: int) -> str:
        return re.sub(r"\{(\w+)\}", lambda found: self.grown(found[1], depth - 1), template)
