"""Modules of the user's count by their sources, as workers import them: of each what the functions need, and what importing it does."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from firesteel.compile.identity.facts import differences
from firesteel.compile.identity.modules import ModuleFile, source_of
from identity_kit import changed, script_prints

SCRIPT = """
import helpers
from helpers import clean
import shop.parts as parts

def own(batches):
    return helpers.made(batches)

rows = env.from_arrow(pa.table({"v": [1]}))
one = rows.rebalance().map_in_arrow(own, "v bigint").name("one")
two = one.rebalance().map_in_arrow(clean, "v bigint").name("two")
three = two.rebalance().map_in_arrow(parts.Step(), "v bigint").name("three")
four = three.rebalance().map_in_arrow(helpers.maker(3), "v bigint").name("four")
four.rebalance().write_parquet("/tmp/nowhere-that-is", mode="overwrite")
"""
HELPERS = '''
"""Helpers."""
from __future__ import annotations
import logging
import re
from typing import TYPE_CHECKING
from shop.rates import RATE as rate
import plugins

if TYPE_CHECKING:
    import nothing_that_is

LOG = logging.getLogger(__name__)
FACTOR = 3
WORDS = re.compile("a+")
KNOWN = {}

def register(function):
    KNOWN[function.__name__] = function
    return function

@register
def plugin(x):
    return x + 1

def made(batches):
    """Makes."""
    LOG.info("made")
    return inner(batches, FACTOR)

def inner(batches, factor):
    import shop.late
    return batches if factor * rate else shop.late.same(batches)

def clean(batches):
    return (b for b in batches if WORDS)

def maker(n):
    def step(batches):
        return made(batches) if n else batches
    return step

def unused():
    return open("x")

if __name__ == "__main__":
    print("hello")
'''
FILES = {
    "helpers.py": HELPERS,
    "plugins.py": "ACTIVE = list('ab')\n",
    "shop/__init__.py": "",
    "shop/rates.py": "RATE = 0.19\nOTHER = 2\n",
    "shop/late.py": "from .rates import OTHER\ndef same(batches):\n    return batches if OTHER else None\n",
    "shop/parts.py": (
        "from . import rates\nclass Base:\n    size = 2\nclass Step(Base):\n    def __call__(self, batches):\n"
        "        return batches if self.size + rates.OTHER else None\n"
    ),
}
MODULES = ("helpers", "plugins", "shop", "colorsys")


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes the modules, some otherwise, and forgets them."""
    monkeypatch.syspath_prepend(tmp_path)

    def forget():
        for name in [name for name in sys.modules if name.partition(".")[0] in MODULES]:
            del sys.modules[name]

    def write(forgotten=True, **texts):
        for name, text in {**FILES, **{name.replace("__", "/") + ".py": text for name, text in texts.items()}}.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        if forgotten:
            forget()

    yield write
    forget()


@pytest.mark.parametrize(
    ("file", "old", "new", "vertices", "said"),
    [
        ("helpers", "FACTOR = 3", "FACTOR = 4", {"one", "four"}, "reads global helpers.FACTOR, 3 then, 4 now"),
        ("helpers", "inner(batches, FACTOR)", "inner(batches, -FACTOR)", {"one", "four"}, "code of helpers.made, which has changed"),
        ("helpers", "batches if factor * rate", "batches if rate * factor", {"one", "four"}, "code of helpers.inner, which has changed"),
        ("helpers", "if WORDS)", "if not WORDS)", {"two"}, "code of helpers.clean, which has changed"),
        ("helpers", 're.compile("a+")', 're.compile("b+")', {"two"}, "reads global helpers.WORDS, which has changed"),
        ("helpers", "return made(batches) if n", "return made(batches) if -n", {"four"}, "code of step, which has changed"),
        ("helpers", "return x + 1", "return x + 2", {"one", "two", "four"}, "code of what importing helpers does, which has changed"),
        ("helpers", '"""Makes."""', '"""Makes it."""', {"one", "four"}, "code of helpers.made, which has changed"),
        ("plugins", "'ab'", "'abc'", set(), ""),
        ("shop__rates", "RATE = 0.19", "RATE = 0.20", {"one", "four"}, "reads global shop.rates.RATE, 0.19 then, 0.2 now"),
        ("shop__rates", "OTHER = 2", "OTHER = 3", {"one", "three", "four"}, "reads global shop.rates.OTHER, 2 then, 3 now"),
        ("shop__late", "if OTHER", "if not OTHER", {"one", "four"}, "code of module shop.late, which has changed"),
        ("shop__parts", "size = 2", "size = 3", {"three"}, ""),
        ("shop__parts", "self.size + ", "self.size - ", {"three"}, ""),
    ],
)  # fmt: skip
def test_what_changes_just_the_vertices_that_use_it(write, file, old, new, vertices, said):
    write()
    known = script_prints(SCRIPT)
    text = FILES[f"{file.replace('__', '/')}.py"]
    assert text.count(old) == 1
    write(**{file: text.replace(old, new)})
    now = script_prints(SCRIPT)
    assert changed(known, now) == vertices
    for vertex in vertices:
        assert said in differences(known[vertex], now[vertex]) or not said


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""Helpers."""', "# helpers\n\n"),
        ('return open("x")', "return 3"),
        ('print("hello")', 'print("good bye")'),
        ("import nothing_that_is", "import something_else"),
        ("def clean", "def another():\n    return 1\n\ndef clean"),
    ],
)
def test_what_changes_nothing(write, old, new):
    write()
    known = script_prints(SCRIPT)
    write(helpers=HELPERS.replace(old, new))
    assert changed(known, script_prints(SCRIPT)) == set()


def test_it_is_the_source_that_counts_not_what_was_imported(write):
    """A notebook imports a module once; its jobs ship the source as it is by then."""
    write()
    known = script_prints(SCRIPT)
    write(forgotten=False, helpers=HELPERS.replace("if WORDS)", "if not WORDS)"))
    assert changed(known, script_prints(SCRIPT)) == {"two"}


def test_importing_what_registers_itself_counts(write):
    write(plugins="ACTIVE = []\nACTIVE.append(1)\n")
    known = script_prints(SCRIPT)
    write(plugins="ACTIVE = []\nACTIVE.append(2)\n")
    now = script_prints(SCRIPT)
    assert changed(known, now) == {"one", "two", "four"}
    assert "code of what importing plugins does, which has changed" in differences(known["two"], now["two"])


def test_imports_in_a_circle_with_a_star_and_of_what_is_not_there(write):
    circle = {
        "helpers": "from plugins import *\nfrom plugins import other\ndef clean(b):\n    return starred(b)\ndef made(b):\n    return other(b)\ndef maker(n):\n    return made\n",
        "plugins": "import helpers\ndef starred(b):\n    return b\ndef other(b):\n    return helpers.clean(b)\n",
    }
    write(**circle)
    known = script_prints(SCRIPT)
    write(**{**circle, "plugins": circle["plugins"].replace("return b\n", "return [b]\n", 1)})
    assert changed(known, script_prints(SCRIPT)) == {"one", "two", "four"}
    write(**{**circle, "plugins": circle["plugins"].replace("helpers.clean(b)", "helpers.clean([b])")})
    assert changed(known, script_prints(SCRIPT)) == {"one", "four"}


def test_an_import_that_may_fail(write):
    tried = "try:\n    import fast_and_not_there as fast\n    from nobody import clean as slow\nexcept ImportError:\n    from plugins import same as slow\n"
    helpers = HELPERS.replace("FACTOR = 3", f"FACTOR = 3\n{tried}").replace(
        "for b in batches if WORDS", "for b in slow(batches)"
    )
    write(helpers=helpers, plugins="def same(b):\n    return b\n")
    known = script_prints(SCRIPT)
    assert changed(known, script_prints(SCRIPT)) == set()
    assert known["two"].facts["library fast_and_not_there"].shown == "not installed"
    write(helpers=helpers, plugins="def same(b):\n    return [b]\n")
    assert "two" in changed(known, script_prints(SCRIPT))


def test_what_comes_with_a_star_may_stand_for_a_builtin(write):
    helpers = "from plugins import *\n\ndef clean(b):\n    return max(b)\n\ndef made(b):\n    return b\n\ndef maker(n):\n    return made\n"
    write(helpers=helpers, plugins="def max(b):\n    return b\n")
    known = script_prints(SCRIPT)
    write(helpers=helpers, plugins="def max(b):\n    return [b]\n")
    assert changed(known, script_prints(SCRIPT)) == {"two"}


def test_what_a_module_imports_counts_as_its_source_says(write):
    """Not as the driver has imported it."""
    script = SCRIPT.replace("helpers.made(batches)", "helpers.rates.RATE and batches")
    helpers = HELPERS.replace("import plugins\n", "import plugins\nimport shop.rates as rates\n")
    write(helpers=helpers)
    known = script_prints(script)
    write(forgotten=False, helpers=helpers.replace("import shop.rates as rates", "import shop.late as rates"))
    assert changed(known, script_prints(script)) == {"one"}


def test_a_module_that_makes_its_names_while_it_runs_counts_whole(write):
    text = "def __getattr__(name):\n    return lambda batches: batches\n"
    write(plugins=text)
    script = SCRIPT.replace("helpers.made(batches)", "plugins.anything(batches)").replace(
        "import helpers\n", "import helpers, plugins\n"
    )
    known = script_prints(script)
    write(plugins=text.replace("batches: batches", "batches: list(batches)"))
    assert "one" in changed(known, script_prints(script))


def test_a_module_without_a_source_equals_nothing(write, tmp_path):
    import types

    write()
    made = types.ModuleType("plugins")
    exec("def same(batches):\n    return batches", made.__dict__)
    sys.modules["plugins"] = made
    script = SCRIPT.replace("helpers.made(batches)", "plugins.same(batches)").replace(
        "import helpers\n", "import helpers, plugins\n"
    )
    known = script_prints(script)
    assert changed(known, script_prints(script)) >= {"one"}
    assert "uses the module plugins, whose source cannot be read" in known["one"].unprovable


def test_a_source_is_read_once_for_all_jobs_that_know_the_same_of_what_it_imports():
    file = ModuleFile("mine", b"import registry\n\nmade = registry.make()\n", is_package=False)
    users, library = source_of(file, lambda module: True), source_of(file, lambda module: False)
    assert (len(users.doing_more), len(library.doing_more)) == (1, 0)
    assert source_of(file, lambda module: True) is users and source_of(file, lambda module: False) is library
    assert source_of(replace(file, source=file.source + b"\n"), lambda module: True) is not users


def test_a_module_of_the_users_that_shadows_a_standard_one_counts_by_its_source(write):
    text = "def same(batches):\n    return batches\n"
    script = SCRIPT.replace("helpers.made(batches)", "colorsys.same(batches)").replace(
        "import helpers\n", "import helpers, colorsys\n"
    )
    write(colorsys=text)
    known = script_prints(script)
    write(colorsys=text.replace("return batches", "return list(batches)"))
    assert changed(known, script_prints(script)) == {"one"}
