"""One thing in a script changes, and just the vertices that use it are others, with a sentence that names it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from firesteel.compile.identity.facts import MOST, OTHERS, VertexPrint, differences
from identity_kit import changed, prints_of, script_prints

SCRIPT = '''
"""A script."""
import dataclasses
import enum
import functools
import math

RATE = 0.19
SHOPS = {"vienna": 1, "graz": 2}
RATES = pa.table({"code": ["a", "b"], "rate": [1.0, 2.0]})

class Unit(enum.Enum):
    KILO = 1000
    ONE = 1

    @property
    def half(self):
        return self.value / 2

@dataclasses.dataclass
class Settings:
    """Told to a step."""
    limit: int = 5
    shops: dict = dataclasses.field(default_factory=lambda: dict(SHOPS))

class Base:
    scale = 2

    def scaled(self, x):
        return x * self.scale

class Cleaner(Base):
    names = ("v",)

    def __init__(self, settings):
        self.settings, self.me = settings, self

    @property
    def limit(self):
        return self.settings.limit

    def __call__(self, batches):
        """Cleans."""
        for batch in batches:  # each
            yield batch.slice(0, self.limit + len(self.names) + int(self.scaled(1)) + len(self.settings.shops))

def tax(x):
    """Of a price."""
    return even(x * RATE) if x else x

def even(x):
    return tax(round(x)) if x > 1 else Unit.ONE.value

def parse(batches, factor=3, *, start=0):
    def one(batch):
        return batch.slice(start, int(tax(batch.num_rows) * factor))
    return (one(batch) for batch in batches)

def joined(table):
    names = [2, 3]

    def step(batches):
        for batch in batches:
            yield batch.slice(0, table.num_rows + sum(names) + math.floor(RATES.num_rows))
    return step

def twice(batches):
    yield from batches

rows = env.from_arrow(pa.table({"v": [1, 2, 3]}))
one = rows.rebalance().map_in_arrow(parse, "v bigint").name("one")
two = one.rebalance().map_in_arrow(Cleaner(Settings()), "v bigint").name("two")
three = two.rebalance().map_in_arrow(joined(pa.table({"x": [1, 2]})), "v bigint").name("three")
four = three.rebalance().map_in_arrow(functools.partial(twice), "v bigint").name("four")
four.rebalance().write_parquet("/tmp/nowhere-that-is", mode="overwrite")
'''


@pytest.fixture(scope="module")
def known():
    return script_prints(SCRIPT)


@pytest.mark.parametrize(
    ("old", "new", "vertices", "said"),
    [
        ("RATE = 0.19", "RATE = 0.20", {"one"}, "reads global RATE, 0.19 then, 0.2 now"),
        ("RATE = 0.19", "RATE = 19", {"one"}, "reads global RATE, 0.19 then, 19 now"),
        ('"graz": 2', '"graz": 3', {"two"}, "reads global SHOPS, which has changed"),
        ('{"vienna": 1, "graz": 2}', '{"graz": 2, "vienna": 1}', {"two"}, "reads global SHOPS, which has changed"),
        ('"rate": [1.0, 2.0]', '"rate": [1.0, 2.5]', {"three"}, "reads global RATES, which has changed"),
        ("ONE = 1", "ONE = 2", {"one"}, "attribute Unit.ONE, 1 then, 2 now"),
        ("self.value / 2", "self.value / 3", {"one"}, "code of Unit.half, which has changed"),
        ("limit: int = 5", "limit: int = 6", {"two"}, "attribute Settings.limit, 5 then, 6 now"),
        ("scale = 2", "scale = 3", {"two"}, "attribute Base.scale, 2 then, 3 now"),
        ('names = ("v",)', 'names = ("w",)', {"two"}, "attribute Cleaner.names, which has changed"),
        ("return x * self.scale", "return self.scale * x", {"two"}, "code of Base.scaled, which has changed"),
        ("return self.settings.limit", "return self.settings.limit + 1", {"two"}, "code of Cleaner.limit, which has changed"),
        ("Cleaner(Settings())", "Cleaner(Settings(7))", {"two"}, "step two, which has changed"),
        ("x * RATE", "RATE * x", {"one"}, "code of tax, which has changed"),
        ("tax(round(x)) if x > 1", "tax(round(x)) if x > 2", {"one"}, "code of even, which has changed"),
        ("factor=3", "factor=4", {"one"}, "default of factor in parse, 3 then, 4 now"),
        ("*, start=0", "*, start=1", {"one"}, "default of start in parse, 0 then, 1 now"),
        ("return batch.slice(start", "return batch.slice(-start", {"one"}, "code of parse, which has changed"),
        ("names = [2, 3]", "names = [2, 4]", {"three"}, "holds captured names of step, which has changed"),
        ('pa.table({"x": [1, 2]})', 'pa.table({"x": [1, 2, 3]})', {"three"}, "holds captured table of step, a table of 2 rows then, a table of 3 rows now"),
        ("math.floor(", "math.ceil(", {"three"}, "code of step, which has changed"),
        ("functools.partial(twice)", "twice", {"four"}, "step four, which has changed"),
        ("yield from batches", "yield from iter(batches)", {"four"}, "code of twice, which has changed"),
        ('"""Of a price."""', '"""Of a gross price."""', {"one"}, "code of tax, which has changed"),
        ('"""Cleans."""', "pass", {"two"}, "code of Cleaner.__call__, which has changed"),
        ('"""Told to a step."""', '"""Settings."""', {"two"}, "attribute Settings.__doc__, a text of 15 characters then, a text of 9 characters now"),
    ],
)  # fmt: skip
def test_what_changes_just_the_vertices_that_use_it(known, old, new, vertices, said):
    assert SCRIPT.count(old) == 1
    now = script_prints(SCRIPT.replace(old, new))
    assert changed(known, now) == vertices
    (vertex,) = vertices
    assert said in differences(known[vertex], now[vertex])
    assert [said for name in known.keys() - vertices for said in differences(known[name], now[name])] == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("RATE = 0.19", "# the rate\n\nRATE = 0.190"),
        ('"""A script."""', ""),
        ("# each", "# every one"),
        ("def tax(x):", "UNUSED = 3\n\ndef unused(x):\n    return x\n\ndef tax(x):"),
        ("self.settings, self.me = settings, self", "self.settings, self.me = (settings, self)"),
        ("yield from batches\n", "yield from batches  # all\n"),
        ("rows = env", "del script_of_mine\nrows = env"),
    ],
)
def test_what_changes_nothing(known, old, new):
    now = script_prints(SCRIPT.replace(old, new), script_of_mine=1)
    assert changed(known, now) == set()
    assert all(differences(known[name], now[name]) == [] for name in known)


def test_the_order_of_attributes_says_nothing_and_that_of_a_dict_does(known):
    settings = "made = Settings()\nmade.b, made.a = 1, 2\n"
    first = script_prints(SCRIPT.replace("rows = env", f"{settings}rows = env").replace("Settings())", "made)"))
    other = settings.replace("made.b, made.a = 1, 2", "made.a = 2\nmade.b = 1")
    assert (
        changed(
            first, script_prints(SCRIPT.replace("rows = env", f"{other}rows = env").replace("Settings())", "made)"))
        )
        == set()
    )


def step(expression: str, **given) -> dict:
    text = f"f = {expression}\nenv.from_arrow(pa.table({{'v': [1]}})).rebalance().map_in_arrow(f, 'v bigint').rebalance().write_parquet('/tmp/no-where')"
    return script_prints(text, **given)


def holding(value) -> bytes:
    """The program of a step whose function has captured the value."""
    found = step("(lambda held: (lambda batches: (b for b in batches if held)))(value)", value=value)
    return next(one.program for name, one in found.items() if name.startswith("map_in_arrow"))


def test_values_that_are_equal_and_not_the_same():
    values = [
        1,
        1.0,
        True,
        "1",
        b"1",
        None,
        0.0,
        -0.0,
        (1,),
        [1],
        {1},
        frozenset({1}),
        {1: 1},
        1 + 0j,
        float("nan"),
        float("inf"),
        bytearray(b"1"),
    ]
    values += [
        np.int64(1),
        np.float64(1),
        np.array([1]),
        np.array([1], np.int32),
        np.array([[1]]),
        np.array(1),
        np.array(["1"]),
        np.array([1], object),
    ]
    values += [
        pa.array([1]),
        pa.array([1], pa.int32()),
        pa.array([1, None]),
        pa.chunked_array([[1]]),
        pa.table({"a": [1]}),
        pa.table({"b": [1]}),
    ]
    values += [
        pa.int64(),
        pa.field("a", pa.int64()),
        pa.field("a", pa.int64(), False),
        pa.schema([("a", pa.int64())]),
        pa.scalar(1),
        pa.py_buffer(b"1"),
    ]
    found = [holding(value) for value in values]
    assert len(set(found)) == len(found)
    assert found == [holding(value) for value in values]


def test_values_that_are_equal_though_they_are_others():
    text = "x" * 100_000
    pairs = [
        ([text, text], [text, "x" * 50_000 + "x" * 50_000]),
        ({*range(1000)}, {*reversed(range(1000))}),
        (pa.table({"a": [0, 1, 2]}).slice(1, 1), pa.table({"a": [1]})),
        (np.arange(10)[::2], np.array([0, 2, 4, 6, 8])),
        (pa.array(["a", "bc", None])[1:], pa.array(["bc", None])),
    ]
    assert all(holding(one) == holding(other) for one, other in pairs)


def test_arrays_by_columns_and_of_records():
    rows = np.arange(6.0).reshape(2, 3)
    assert holding(rows) != holding(np.asfortranarray(rows))
    kind = np.dtype([("a", "i1"), ("b", "i8")], align=True)
    one, other = np.zeros(2, kind), np.frombuffer(b"\xff" * 32, kind).copy()
    other["a"], other["b"] = 0, 0  # what lies between them is not the same
    assert holding(one) == holding(other)
    other["a"][1] = 1
    assert holding(one) != holding(other)


def test_circles_end():
    text = "class Node:\n    pass\ndef tree(n):\n    nodes = [Node() for _ in range(n)]\n    for i, node in enumerate(nodes):\n        node.next, node.before, node.i = nodes[(i + 1) % n], nodes[i - 1], i\n    return nodes\n"

    def ring(n, odd):
        env_text = f"{text}nodes = tree({n})\nnodes[{n // 2}].i = {odd}\n"
        found = script_prints(
            f"{env_text}env.from_arrow(pa.table({{'v': [1]}})).map_in_arrow(lambda b: b if nodes else b, 'v bigint').write_parquet('/tmp/no-where')"
        )
        return next(iter(found.values()))

    assert ring(8, 5).program == ring(8, 5).program
    assert ring(8, 5).program != ring(8, 6).program
    assert not ring(8, 5).unprovable


def reads(body: str, before: str = "") -> tuple[str, ...]:
    """Why a step's function ``f`` with this body, and these lines before it, is not proved to do the same again."""
    text = (
        "import dataclasses, datetime, io, json, os, pathlib, re, sys, time\nimport numpy as np\nimport pandas as pd\nimport pyarrow.compute as pc\n"
        f"from typing import Iterator\n{before}\ndef f(batches: Iterator[pa.RecordBatch]):\n    {body}\n    return batches\n"
        "env.from_arrow(pa.table({'v': [1]})).rebalance().map_in_arrow(f, 'v bigint').rebalance().write_parquet('/tmp/no-where')"
    )
    one, other = script_prints(text), script_prints(text)
    assert changed(one, other) == set()  # the same program all the same
    (vertex,) = [name for name in one if name.startswith("map")]
    assert not any(found.unprovable for name, found in one.items() if name != vertex)
    return one[vertex].unprovable


@pytest.mark.parametrize(
    ("before", "body", "name"),
    [
        # files
        ("", "open('x').read()", "open"),
        ("import configparser", "configparser.ConfigParser().read('x')", "configparser.ConfigParser"),
        ("import xml.etree.ElementTree as ET", "ET.parse('x')", "xml.etree.ElementTree.parse"),
        ("", "pathlib.Path('rules').glob('*')", "pathlib.Path"),
        ("PLACE = pathlib.Path('x')", "PLACE.stat()", f"{type(Path()).__module__}.{type(Path()).__name__}"),
        ("", "os.path.exists('x')", f"{os.path.__name__}.exists"),
        ("", "np.fromfile('x')", "numpy.fromfile"),
        ("from pandas import read_csv", "read_csv('x')", "pandas.io.parsers.readers.read_csv"),
        ("", "pa.OSFile('x')", "pyarrow.OSFile"),
        ("", "pa.RecordBatchFileReader('x')", "pyarrow.RecordBatchFileReader"),
        ("", "pa.RecordBatchStreamWriter('x', None)", "pyarrow.RecordBatchStreamWriter"),
        ("", "pa.CompressedInputStream('x', 'gzip')", "pyarrow.CompressedInputStream"),
        ("", "pd.to_pickle(1, 'x')", "pandas.to_pickle"),
        ("from pyarrow import fs\nFS = fs.LocalFileSystem()", "FS.open_input_file('x')", "a filesystem"),
        ("import functools\nread = functools.partial(open, 'x')", "read()", "io.open"),
        ("import yaml", "yaml.safe_load('x')", "yaml.safe_load"),
        ("", "json.codecs.open('x')", "codecs.open"),
        # what is imported within the function
        ("", "import os as system\n    system.stat('x')", "os.stat"),
        ("", "import numpy as n\n    def g():\n        return n.load('x')\n    g()", "numpy.load"),
        ("", "import numpy as n\n    getattr(n, 'lo' + 'ad')", "numpy"),
        ("", "from pyarrow import compute as c\n    c.random(3)", "pyarrow.compute.random"),
        ("", "import pandas\n    pandas.io.common.get_handle('x')", "pandas.io.common.get_handle"),
        # the clock, chance, the process
        ("", "time.time()", "time.time"),
        ("", "datetime.datetime.now()", ".now"),
        ("now = datetime.datetime.now", "now()", ".now"),
        ("", "np.random.rand()", "numpy.random.rand"),
        ("from numpy.random import default_rng as rng", "rng(1).random()", "numpy.random.default_rng"),
        ("from uuid import uuid4", "uuid4()", "uuid.uuid4"),
        ("", "pd.DataFrame().sample(3)", ".sample"),
        ("", "getattr(pd.DataFrame(), 'sample')(3)", "'sample'"),
        ("", "pc.call_function('random', [3])", "'random'"),
        ("", "np.datetime64('now')", "'now'"),
        ("", "np.datetime64('Today'), np.datetime64(b'NOW')", "'NOW'"),
        ("", "pd.to_datetime('10:00')", "pandas.to_datetime"),
        ("from pandas import Timestamp", "Timestamp('10:00')", "pandas._libs.tslibs.timestamps.Timestamp"),
        ("", "[pd.Series(one) for one in ('today', 'x')]", "'today'"),
        ("", "pd.Series(['10:00']).astype('datetime64[ns]')", "'datetime64[ns]'"),
        ("WHEN = ('x', 'Now')", "np.datetime64(WHEN[1])", "'Now'"),
        ("HOW = 'sample'", "getattr(pd.DataFrame(), HOW)(3)", "'sample'"),
        ("import statistics", "statistics.NormalDist().samples(3)", ".samples"),
        ("", "class Clock(datetime.date):\n        def read(self):\n            return super().today()", ".today"),
        ("", "os.environ['x']", "os.environ"),
        ("", "sys.modules['os']", "sys.modules"),
        ("", "hash('a')", "hash"),
        ("import ctypes", "ctypes.CDLL(None)", "ctypes.CDLL"),
        # code and names that are made or found while it runs
        ("", "[eval('1') for _ in batches]", "eval"),
        ("", "globals()['x']", "globals"),
        ("", "f.__globals__['os']", ".__globals__"),
        ("", "pd.DataFrame().query('a > @x')", ".query"),
        ("import importlib", "importlib.import_module('os')", "importlib.import_module"),
        ("import inspect", "inspect.getsource(f)", "inspect.getsource"),
        ("", "f.__code__.co_firstlineno", ".__code__"),
    ],
)  # fmt: skip
def test_what_is_not_known_to_be_pure_is_named(before, body, name):
    (said,) = reads(body, before)
    assert said.startswith("uses ") and said.endswith(" in f, which Firesteel does not know to be pure")
    assert name in said.removeprefix("uses ").partition(" in f,")[0].split(", ")


@pytest.mark.parametrize(
    "given", ["Lookup(FS)", "Lookup(FS).read", "functools.partial(read, fs=FS)", "functools.partial(read, fs=[FS])"]
)
def test_a_filesystem_that_an_object_holds_is_named(given):
    text = (
        "import functools\nfrom pyarrow import fs\nFS = fs.LocalFileSystem()\ndef read(batches, fs):\n    return batches\n"
        "class Lookup:\n    def __init__(self, fs):\n        self.fs = fs\n    def __call__(self, batches):\n        return self.fs.open_input_file('x')\n"
        "    def read(self, batches):\n        return self.fs.open_input_file('x')\n"
        f"env.from_arrow(pa.table({{'v': [1]}})).map_in_arrow({given}, 'v bigint').write_parquet('/tmp/no-where')"
    )
    (found,) = script_prints(text).values()
    assert found.unprovable == ("uses a filesystem, which Firesteel does not know to be pure",)


def test_a_filesystem_that_a_source_holds_is_no_reason():
    from pyarrow.fs import LocalFileSystem

    text = (
        "from firesteel import Split\nclass Files:\n    name, schema = 'files', pa.schema([('v', pa.int64())])\n    def __init__(self, fs):\n        self.fs = fs\n"
        "    def list_splits(self, data_volume):\n        return [Split('x', 1, 'x')]\n    def fingerprint(self):\n        return b'1'\n"
        "    def read(self, split, ctx):\n        yield self.fs.open_input_file(split)\n"
        "env.from_source(Files(FS)).write_parquet('/tmp/no-where')"
    )
    (found,) = script_prints(text, FS=LocalFileSystem()).values()
    assert found.unprovable == ()


@pytest.mark.parametrize(
    ("read", "said"), [("n.sqrt(1)", ()), ("n.load('x')", "numpy.load"), ("getattr(n, 'load')", "numpy")]
)
def test_a_module_that_the_function_around_imports_counts_as_far_as_it_is_read(read, said):
    text = (
        f"def main():\n    import numpy as n\n    def f(batches):\n        def g():\n            return {read}\n        return g() and batches\n"
        "    env.from_arrow(pa.table({'v': [1]})).map_in_arrow(f, 'v bigint').write_parquet('/tmp/no-where')\nmain()"
    )
    (found,) = script_prints(text).values()
    assert found.unprovable == (said and (f"uses {said} in f, which Firesteel does not know to be pure",))


def test_what_type_variables_and_dispatching_functions_hold_counts():
    text = (
        "import functools\nfrom typing import TypeVar\nT = TypeVar('T', bound=int)\n@functools.singledispatch\ndef shown(x: T) -> T:\n    return x\n"
        "@shown.register\ndef _(x: str):\n    return 1\n"
        "env.from_arrow(pa.table({'v': [1]})).map_in_arrow(lambda b: T and shown(b), 'v bigint').write_parquet('/tmp/no-where')"
    )
    known = script_prints(text)
    assert changed(known, script_prints(text)) == set()
    for old, new in (("return 1", "return 2"), ("x: str", "x: float"), ("bound=int", "bound=float")):
        assert changed(known, script_prints(text.replace(old, new))) == set(known)


def test_a_ufunc_of_another_library_is_named():
    """It is pickled by a bare name, which ``numpy`` may have too, for another function."""
    found = step("(lambda held: (lambda batches: held and batches))(value)", value=np.frompyfunc(abs, 1, 1))
    assert [why for one in found.values() for why in one.unprovable if "ufunc abs" in why]


def test_a_function_that_is_called_is_named():
    assert reads("helper()", "def helper():\n    yield open('y')") == (
        "uses open in helper, which Firesteel does not know to be pure",
    )


def test_an_expression_may_draw():
    rows = "ROWS = (pc.field('v') > 0) & (pc.Expression._call('random', [], pc.RandomOptions()) < 0.5)"
    assert "draws at random (an expression with random()) in f" in reads("drawn.filter(ROWS)", rows)


@pytest.mark.parametrize(
    ("before", "body"),
    [
        ("", "os.path.join('a', 'b'), io.BytesIO(), time.sleep(0), getattr(batches, 'x', None), print('x')"),
        ("ROWS = pc.field('random') > 0", "{ROWS: pc.if_else(True, 1, 2)}, pa.types.is_integer(pa.int64()), pa.Table.from_pandas(pd.DataFrame())"),
        ("", "pd.DataFrame({'a': [1]}).groupby('a').agg({'a': 'sum'}), np.linalg.norm([1]), np.vectorize(len)"),
        ("", "import pandas, numpy as n\n    from pyarrow import compute as c\n    def g():\n        return c.add(n.log(1), 1)\n    g(), pandas.concat([])"),
        (
            "from collections import namedtuple\nfrom functools import lru_cache\nimport logging, enum, contextlib\nLOG = logging.getLogger('x')\nWORDS = re.compile('a+')\n"
            "Pair = namedtuple('Pair', 'a b')\n@dataclasses.dataclass(frozen=True)\nclass Key:\n    v: int = 3\n    parts: list = dataclasses.field(default_factory=list)\n"
            "class Kind(enum.Enum):\n    A = 1\n@lru_cache\ndef cached(x):\n    return x\n@contextlib.contextmanager\ndef within():\n    yield 1",
            "{Key(1): LOG.info('x')}, json.loads('1'), WORDS.match('a'), Pair(1, 2), Kind.A, cached(1), within()",
        ),
        (
            "import zoneinfo, decimal\nFRAME = pd.DataFrame({'a': [1], 'c': pd.to_datetime(['2020-01-01']), 'd': pd.Categorical(['a'])})\n"
            "HELD = FRAME, FRAME.set_index('c'), np.arange(3), pd.Timestamp('2020-01-01'), zoneinfo.ZoneInfo('Europe/Berlin'), pa.scalar(1), decimal.Decimal(1), datetime.date(2020, 1, 1)",
            "FRAME.merge(HELD[0]), FRAME.set_index('c'), isinstance(1, datetime.datetime), datetime.datetime(2020, 1, 1).strftime('%Y')",
        ),
        (
            "import functools, hashlib, logging\nfrom hashlib import blake2b\nfrom typing import Generic, NewType, TypeVar\nfrom urllib.parse import urlsplit\n"
            "T = TypeVar('T')\nUser = NewType('User', int)\nclass Box(Generic[T]):\n    query = 'x'\n    def get(self, today: T) -> T:\n        return self.query\n"
            "@functools.singledispatch\ndef shown(x):\n    return shown(x.inner)\n@shown.register\ndef _(x: int):\n    return x\n"
            "def first(xs: list[T], by: User = 0) -> T:\n    return xs[0]\nNAMES = {'now': 1}",
            "first([1]), Box().get(NAMES['now']), {}['today'], urlsplit('x').query, logging.info('x'), shown(1), blake2b(b'x'), f.samples",
        ),
    ],
)  # fmt: skip
def test_what_is_known_to_be_pure(before, body):
    assert reads(body, before) == ()


def test_what_the_user_says_is_pure():
    text = (
        "import configparser\ndef f(batches):\n    configparser.ConfigParser(), open('x')\n    return batches\n"
        "env.from_arrow(pa.table({'v': [1]})).map_in_arrow(f, 'v bigint').write_parquet('/tmp/no-where')"
    )
    (found,) = script_prints(text, ["configparser"]).values()
    assert found.unprovable == ("uses open in f, which Firesteel does not know to be pure",)


def test_what_cannot_be_looked_into_equals_nothing():
    import threading

    lock = threading.Lock()
    one, other = holding(lock), holding(lock)
    assert one != other
    found = step("(lambda held: (lambda batches: (b for b in batches if held)))(value)", value=lock)
    assert any("holds a lock, which cannot be pickled" in why for each in found.values() for why in each.unprovable)


def test_objects_may_do_anything_when_they_are_looked_at():
    class Odd:
        @property
        def __class__(self):
            raise RuntimeError("do not look")

    deep = []
    for _ in range(5000):
        deep = [deep]
    for value, said in (
        (Odd(), "which cannot be looked into (RuntimeError)"),
        (deep, "holds values in more than 100 others"),
    ):
        found = step("(lambda held: (lambda batches: (b for b in batches if held)))(value)", value=value)
        assert any(said in why for each in found.values() for why in each.unprovable)
        assert holding(value) != holding(value)


def test_a_step_that_its_user_calls_nondeterministic_is_said_to_be():
    rows = "env.from_arrow(pa.table({'v': [1]})).rebalance().map_in_arrow(lambda b: b, 'v bigint')"
    found = script_prints(f"{rows}.as_nondeterministic().rebalance().write_parquet('/tmp/no-where')")
    (said,) = [why for one in found.values() for why in one.unprovable]
    assert said.startswith("may give other rows (as_nondeterministic() of step 'map_in_arrow(<lambda>)'")


def test_secrets_are_not_shown():
    found = script_prints(
        "PASSWORD = 'geheim-123'\nKEY = b'geheim-123'\n"
        "env.from_arrow(pa.table({'v': [1]})).map_in_arrow(lambda b: (PASSWORD, KEY) and b, 'v bigint').write_parquet('/tmp/no-where')"
    )
    (vertex,) = found.values()
    assert vertex.facts["global PASSWORD"].shown == "a text of 10 characters"
    assert "geheim" not in repr(vertex)


def test_facts_beyond_the_first_count_as_one():
    text = (
        "".join(f"G{n} = {n}\n" for n in range(2 * MOST))
        + "def f(batches):\n    "
        + ", ".join(f"G{n}" for n in range(2 * MOST))
    )
    text += "\n    return batches\nenv.from_arrow(pa.table({'v': [1]})).map_in_arrow(f, 'v bigint').write_parquet('/tmp/no-where')"
    (one,), (other,) = script_prints(text).values(), script_prints(text.replace("G399 = 399", "G399 = 3")).values()
    assert len(one.facts) == MOST
    assert one.program != other.program
    assert differences(one, other) in ([f"{OTHERS}, which has changed"], ["reads global G399, 399 then, 3 now"])


def test_prints_of_a_program_that_was_made_since(tmp_path):
    from firesteel import ExecutionEnvironment
    from firesteel.compile.identity.prints import JobPrints

    env = ExecutionEnvironment(options={"firesteel.progress": False})
    env.from_arrow(pa.table({"v": [1]})).write_parquet(str(tmp_path / "out"))
    job = env.compile()
    prints = JobPrints(job)
    assert (
        prints.of_program(job.job_graph.vertices[0].program).program
        == prints.vertices[0].program
        == next(iter(prints_of(job).values())).program
    )


def test_a_print_is_plain_data(known):
    """As the log of a job has it."""
    import msgspec

    packed = msgspec.msgpack.encode(list(known.values()))
    assert msgspec.msgpack.decode(packed, type=list[VertexPrint]) == list(known.values())
    plain = msgspec.to_builtins(list(known.values()), builtin_types=(bytes,))
    assert msgspec.convert(plain, list[VertexPrint], builtin_types=(bytes,)) == list(known.values())
