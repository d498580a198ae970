"""Which modules go with a job, and how workers take them in."""

from __future__ import annotations

import sys
import traceback

import pytest

from firesteel.spark.session.shipping import modules_beside
from firesteel.task.executor import information as on_executor
from firesteel.task.executor.information import ModuleSource, take_in


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """A working directory with modules; those that a test imports are forgotten behind it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    files = {
        "helpers.py": "import json, lazily_needed.deep as d\ndef clean(text): return text.strip()",
        "lazily_needed/__init__.py": "",
        "lazily_needed/deep.py": "def f():\n    from shop.parts import (\n        prices,  # here\n        names as n,\n    )",
        "lazily_needed/unused.py": "",
        "shop/__init__.py": "from .models import *",
        "shop/models.py": "",
        "shop/parts/prices.py": "from ..models import Order\nfrom . import names\nimport numpy",
        "shop/parts/names.py": '"""\nimport other\n"""',
        "other.py": "",
        "unrelated.py": "import helpers",
        "data.csv": "a",
        "site-packages/installed.py": "",
        "json.py": "raise AssertionError",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("helpers", "lazily_needed", "shop", "other", "unrelated"):
            del sys.modules[name]


def names(*programs):
    return [module.name for module in modules_beside(programs)]


def test_what_is_named_goes_along_with_all_that_it_imports(beside):
    import helpers
    from pyspark import cloudpickle

    def by_reference(row):
        return helpers.clean(row)

    needed = ["helpers", "lazily_needed", "lazily_needed.deep", "other", "shop", "shop.models", "shop.parts"]
    needed += ["shop.parts.names", "shop.parts.prices"]
    assert names(cloudpickle.dumps(by_reference)) == needed
    assert names(cloudpickle.dumps(helpers.clean)) == needed
    assert names(cloudpickle.dumps(len)) == []
    packages = {module.name for module in modules_beside([cloudpickle.dumps(helpers.clean)]) if module.is_package}
    assert packages == {"lazily_needed", "shop", "shop.parts"}


def test_a_submodule_is_found_by_its_full_name(beside):
    import shop.parts.names
    from pyspark import cloudpickle

    assert names(cloudpickle.dumps(shop.parts.names)) == [
        "other",
        "shop",
        "shop.models",
        "shop.parts",
        "shop.parts.names",
    ]


def test_what_is_installed_or_elsewhere_stays(beside, monkeypatch):
    import pickle

    monkeypatch.syspath_prepend(beside / "site-packages")
    import installed

    assert names(pickle.dumps(["installed", "json", "firesteel", "numpy", "pytest", "data"])) == []
    del sys.modules[installed.__name__]


def test_a_link_to_what_is_installed_stays(beside, monkeypatch):
    (beside / "links").mkdir()
    (beside / "links" / "installed.py").symlink_to(beside / "site-packages" / "installed.py")
    monkeypatch.syspath_prepend(beside / "links")
    import installed

    assert "links" in str(installed.__file__)
    assert names(b"installed.f") == []
    del sys.modules[installed.__name__]


def test_a_folder_that_nothing_is_imported_from_has_no_modules(beside, monkeypatch):
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one != str(beside)])
    assert names(b"\x8c\x07helpers") == []
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    assert "helpers" in names(b"\x8c\x07helpers")


def test_a_working_directory_that_is_gone_has_no_modules(beside, monkeypatch):
    gone = beside / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setattr(sys, "path", ["/nowhere", *sys.path[1:]])
    assert names(b"\x8c\x07helpers") == []


# --- on executors ---


@pytest.fixture
def worker(monkeypatch):
    """The module in the state of a new worker."""
    fresh = on_executor._Sources()
    monkeypatch.setattr(on_executor, "_sources", fresh)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = set(sys.modules)
    yield fresh
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("alone", "pack"):
            del sys.modules[name]


def sources(version, more=()):
    return (
        ModuleSource(
            "alone",
            "/driver/alone.py",
            f"from pack.inner import v\ndef f(): return v, {version}\ndef g(): 1 / 0".encode(),
        ),
        ModuleSource("pack", "/driver/pack/__init__.py", b"", is_package=True),
        ModuleSource("pack.inner", "/driver/pack/inner.py", b"v = []"),
        *more,
    )


def test_modules_are_imported_from_their_sources_and_anew_when_one_changes(worker):
    take_in(sources(1))
    import alone

    assert alone.f() == ([], 1)
    alone.f()[0].append("kept")
    for same in (sources(1), sources(1, [ModuleSource("more", "/driver/more.py", b"")]), sources(1)[:1], sources(1)):
        take_in(same)  # another job: what its worker has loaded stays
        assert __import__("alone") is alone
    take_in(sources(2))
    assert __import__("alone") is not alone
    assert __import__("alone").f() == ([], 2)


def test_a_job_finds_no_modules_of_another_one(worker, tmp_path, monkeypatch):
    take_in(sources(1))
    import alone

    take_in(())
    with pytest.raises(ModuleNotFoundError):
        __import__("pack")
    (tmp_path / "alone.py").write_text("installed = True")
    monkeypatch.syspath_prepend(tmp_path)
    assert __import__("alone").installed
    take_in(sources(1)[1:])
    assert __import__("alone").installed
    take_in(sources(1))
    assert __import__("alone") is alone
    assert alone.f() == ([], 1)
    more = [ModuleSource("pack.more", "/driver/pack/more.py", b"")]
    for modules in (sources(1, more), sources(1), sources(1, more)):
        take_in(modules)
        assert __import__("alone") is alone


def test_tracebacks_show_the_drivers_file_and_the_line(worker):
    take_in(sources(1))
    import alone

    with pytest.raises(ZeroDivisionError) as caught:
        alone.g()
    frame = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (frame.filename, frame.lineno, frame.name) == ("/driver/alone.py", 3, "g")
    assert frame.line == "def g(): 1 / 0"


def test_what_was_imported_from_a_file_before_is_replaced(worker, tmp_path, monkeypatch):
    (tmp_path / "alone.py").write_text("old = True")
    monkeypatch.syspath_prepend(tmp_path)
    import alone

    assert alone.old
    take_in(sources(1))
    assert __import__("alone").f() == ([], 1)
