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
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    return set(run.stdout.split())


def tops(modules: set[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


def rooms(modules: set[str]) -> set[str]:
    """The parts of firesteel that are loaded: ``results``, ``errors``, ..."""
    return {module.split(".")[1] for module in modules if module.startswith("firesteel.")}


@pytest.mark.parametrize("room", ["model", "options", "scheduler"])
def test_the_control_plane_loads_no_data_plane(room):
    """All of it, and all that it loads in turn."""
    loaded = imported(*modules_of(room))
    assert not tops(loaded) & {*HEAVY, "pyarrow", "py4j"} - {"msgspec"}  # records are msgspec's
    assert rooms(loaded) <= {
        "model",
        "options",
        "scheduler",
        "errors",
        "humanize",
        "masking",
        "option_functions",
        "users_line",
    }


def modules_of(room: str) -> list[str]:
    paths = [path.relative_to(SOURCES).with_suffix("") for path in sorted((SOURCES / room).rglob("*.py"))]
    return [".".join(("firesteel", *path.parts)).removesuffix(".__init__") for path in paths]


def test_compiling_and_describing_load_no_pyspark():
    loaded = imported("firesteel.compile.compiler", "firesteel.compile.describe")
    assert "pyspark" not in tops(loaded)
    assert not rooms(loaded) & {"spark", "api", "cli", "journal", "scheduler"}


def test_an_executor_loads_nothing_but_arrow_and_numpy():
    loaded = imported("firesteel.task.runner", "firesteel.task.operators.composed", "firesteel.task.operators.groups")
    assert not tops(loaded) & set(HEAVY)
    assert rooms(loaded) <= {"task", "engine", "results", "model", "errors", "humanize"}


def test_connectors_load_nothing_but_arrow_and_numpy():
    loaded = imported(
        "firesteel.connectors.formats.text", "firesteel.connectors.formats.parquet", "firesteel.connectors.memory"
    )
    assert not tops(loaded) & {*HEAVY} - {"pandas"}  # pyarrow.dataset loads pandas where there is one
    assert rooms(loaded) <= {"connectors", "task", "engine", "results", "model", "errors", "humanize", "masking"}


def test_results_import_nothing_of_ours_but_errors():
    loaded = imported(
        "firesteel.results.reader", "firesteel.results.writer", "firesteel.results.storage.store", "firesteel.results.hashing",
        "firesteel.results.keys",
    )  # fmt: skip
    assert rooms(loaded) <= {"results", "model", "errors"}
    assert not tops(loaded) & set(HEAVY)


def test_building_a_pipeline_needs_no_spark():
    loaded = imported("firesteel.api.environment", "firesteel.api.streams.keyed_stream")
    assert "pyspark" not in tops(loaded)


def test_where_there_is_no_page_no_server_is_loaded():
    loaded = imported("firesteel.api.adaptive_stream", "firesteel.spark.driver.runtime", "firesteel.cli.main")
    assert not tops(loaded) & {"starlette", "uvicorn", "jinja2", "h11", "anyio"}
    assert {module for module in loaded if module.startswith("firesteel.ui.")} == {
        "firesteel.ui.process",
        "firesteel.ui.begun",
    }


def test_the_facade_alone_loads_nothing():
    assert tops(imported("firesteel")) & {*HEAVY, "pyarrow", "numpy"} == set()


def test_telling_of_a_job_loads_no_arrow():
    """Which, with what it loads in turn, takes longer than telling."""
    loaded = imported("firesteel.report.explain", "firesteel.journal.listing", "firesteel.report.fold")
    assert not tops(loaded) & {"pyspark", "pandas", "pyarrow"}


@pytest.mark.parametrize("room", ["journal", "report", "view", "cli", "monitoring"])
def test_readers_of_the_journal_do_not_reach_into_the_scheduler(room):
    named = {name for path in sorted((SOURCES / room).rglob("*.py")) for name in imports_of(path)}
    inside = {name for name in named if name.startswith("firesteel.scheduler.")}
    kernel = {
        f"firesteel.scheduler.kernel.{m}" for m in ("records", "decisions", "events", "commands", "states", "waits")
    }
    assert inside <= kernel | {
        "firesteel.scheduler.parallelism.replay",
        "firesteel.scheduler.slots.resource_profile",
        "firesteel.scheduler.streaming.records",
        "firesteel.scheduler.streaming.waits",
    }
    assert room == "cli" or not any(name.startswith("pyspark") for name in named)


def imports_of(path: Path) -> Iterator[str]:
    """The modules that a file names in import statements, wherever they stand."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
