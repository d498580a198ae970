"""The rooms' import arrows, each proved in a fresh interpreter."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import firesteel

SOURCES = Path(firesteel.__file__).parent
HEAVY = ("pyspark", "msgspec", "typer", "rich", "pandas")


def imported(*modules: str) -> set[str]:
    """Everything that is loaded once these modules are."""
    code = f"import sys\nfor m in {modules!r}: __import__(m)\nprint('\\n'.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(run.stdout.split())


def tops(modules: set[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


def rooms(modules: set[str]) -> set[str]:
    """The parts of firesteel that are loaded: ``results``, ``errors``, ..."""
    return {module.split(".")[1] for module in modules if module.startswith("firesteel.")}


def test_the_control_plane_imports_no_pyspark():
    loaded = imported(
        "firesteel.graph.compiler", "firesteel.graph.describe", "firesteel.scheduler.factory", "firesteel.options"
    )
    assert "pyspark" not in tops(loaded)
    assert not rooms(loaded) & {"spark", "api", "cli", "journal"}


def test_an_executor_loads_nothing_but_arrow_and_numpy():
    loaded = imported("firesteel.operators.task", "firesteel.operators.composed", "firesteel.operators.narrow")
    assert not tops(loaded) & set(HEAVY)
    assert rooms(loaded) <= {"operators", "results", "errors", "sketches"}


def test_connectors_load_nothing_but_arrow_and_numpy():
    loaded = imported("firesteel.connectors.text", "firesteel.connectors.parquet", "firesteel.connectors.memory")
    assert not tops(loaded) & {*HEAVY} - {"pandas"}  # pyarrow.dataset loads pandas where there is one
    assert rooms(loaded) <= {"connectors", "operators", "results", "errors", "humanize", "sketches"}


def test_results_import_nothing_of_ours_but_errors():
    loaded = imported(
        "firesteel.results.reader", "firesteel.results.writer", "firesteel.results.store", "firesteel.results.hashing",
        "firesteel.results.keys",
    )  # fmt: skip
    assert rooms(loaded) <= {"results", "errors"}
    assert not tops(loaded) & set(HEAVY)


def test_building_a_pipeline_needs_no_spark():
    loaded = imported("firesteel.api.environment", "firesteel.api.keyed_stream")
    assert "pyspark" not in tops(loaded)


def test_the_facade_alone_loads_nothing():
    assert tops(imported("firesteel")) & {*HEAVY, "pyarrow", "numpy"} == set()


def test_telling_of_a_job_loads_no_arrow():
    """Which, with what it loads in turn, takes longer than telling."""
    loaded = imported("firesteel.journal.explain", "firesteel.journal.listing", "firesteel.journal.history")
    assert not tops(loaded) & {"pyspark", "pandas", "pyarrow"}


@pytest.mark.parametrize("room", ["journal", "cli"])
def test_readers_of_the_journal_do_not_reach_into_the_scheduler(room):
    named = {name for path in sorted((SOURCES / room).glob("*.py")) for name in imports_of(path)}
    inside = {name for name in named if name.startswith("firesteel.scheduler.")}
    assert inside <= {
        f"firesteel.scheduler.{m}"
        for m in ("records", "events", "commands", "states", "resource_profile", "streaming.records")
    }
    assert room == "cli" or not any(name.startswith("pyspark") for name in named)


def imports_of(path: Path) -> Iterator[str]:
    """The modules that a file names in import statements, wherever they stand."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
