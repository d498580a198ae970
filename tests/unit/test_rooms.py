"""The walls of the house, read from the sources: which room may import which. (test_architecture loads them.)"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

import firesteel

PACKAGE = Path(firesteel.__file__).parent
ROOT = PACKAGE.parents[1]
COMMON = {"errors", "humanize", "masking", "sizes", "sketches", "descriptors", "package_files"}
"""Stdlib and numpy only, for everybody."""

ALLOWED = {
    "results": {"results"},
    "operators": {"operators", "results"},
    "connectors": {"connectors", "operators", "results", "expressions", "options"},
    "graph": {"graph", "operators", "connectors", "expressions", "options", "option_values", "results"},
    "scheduler": {"scheduler", "graph", "options"},
    "journal": {"journal", "scheduler", "options"},
    "display": {"display", "journal", "scheduler", "graph"},
    "api": {
        "api",
        "display",
        "graph",
        "operators",
        "connectors",
        "expressions",
        "options",
        "option_layers",
        "option_registry",
        "journal",
        "scheduler",
        "spark",
        "results",
        "control",
    },
    "streaming": {"api", "scheduler"},
    "simulation": {"simulation", "scheduler", "graph", "options", "journal"},
    "control": {"control", "scheduler"},
    "cli": {
        "cli",
        "journal",
        "options",
        "option_layers",
        "option_registry",
        "api",
        "simulation",
        "control",
        "streaming",
    },
    "options": {
        "option_registry",
        "option_values",
        "options_resources",
        "options_restart",
        "options_speculation",
        "options_streaming",
    },
    "options_resources": {"option_registry", "option_values"},
    "options_restart": {"option_registry", "option_values"},
    "options_speculation": {"option_registry", "option_values"},
    "options_streaming": {"option_registry", "option_values"},
    "option_registry": {"option_values"},
    "option_files": {"options"},
    "option_layers": {"option_files", "option_registry", "options"},
    "option_values": set(),
    "descriptors": set(),
    "errors": set(),
    "humanize": set(),
    "masking": set(),
    "sizes": set(),
    "package_files": set(),
    "sketches": set(),
    "expressions": {"expressions"},
}
"""``spark`` may import all; the façade ``__init__`` imports by name, when it is used."""

EXECUTOR_ROOMS = ("results", "operators", "connectors", "sizes", "sketches", "descriptors")
EXECUTOR_PACKAGES = {"numpy", "pyarrow"}
CONTROL_ROOMS = ("scheduler", "graph", "options", "journal", "simulation")


def modules(room: str) -> list[Path]:
    folder = PACKAGE / room
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [PACKAGE / f"{room}.py"]


def imports(path: Path, *, top_level: bool = False) -> set[str]:
    """Full names that a module imports, those only for the type checker left out."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if top_level and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if isinstance(child, ast.Import):
                found.update(alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and child.module:
                names = (
                    [f"firesteel.{alias.name}" for alias in child.names]
                    if child.module == "firesteel"
                    else [child.module]
                )
                found.update(names)
            visit(child)

    visit(ast.parse(path.read_text()))
    return found


@pytest.mark.parametrize("room", ALLOWED)
def test_a_room_imports_only_the_rooms_it_may(room):
    for path in modules(room):
        for name in imports(path):
            if name.startswith("firesteel."):
                other = name.split(".")[1]
                public = other[0].isupper() or other in ("col", "lit")  # the façade's names
                assert other in ALLOWED[room] | COMMON or (public and room == "cli"), (
                    f"{path.relative_to(PACKAGE)} imports {name}"
                )


@pytest.mark.parametrize("room", EXECUTOR_ROOMS)
def test_executor_rooms_load_only_stdlib_numpy_and_pyarrow(room):
    for path in modules(room):
        for name in imports(path, top_level=True):
            package = name.split(".")[0]
            known = package == "firesteel" or package in sys.stdlib_module_names or package in EXECUTOR_PACKAGES
            assert known, f"{path.relative_to(PACKAGE)} imports {name}"


@pytest.mark.parametrize("room", CONTROL_ROOMS)
def test_the_control_plane_knows_no_spark(room):
    for path in modules(room):
        assert not any(name.split(".")[0] in ("pyspark", "py4j") for name in imports(path)), path


def test_the_scheduler_does_no_io_and_reads_no_clock():
    forbidden = {"time", "datetime", "os", "pathlib", "io", "socket", "threading", "asyncio", "subprocess", "random"}
    for path in modules("scheduler"):
        assert not imports(path) & forbidden, path


def test_no_module_grows_past_600_lines():
    for path in PACKAGE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 620, path


def test_every_public_name_can_be_imported():
    for name in firesteel.__all__:
        assert getattr(firesteel, name) is not None
    with pytest.raises(AttributeError):
        _ = firesteel.nothing_like_this


def test_no_file_names_a_registry_or_a_place_on_a_developers_machine():
    folders = ("src", "tests", "docs", "tools", "examples", "benchmarks", "typings", ".ci")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*")] + [*ROOT.glob("*")]
    pattern = re.compile(r"/wor" + r"k/|py" + r"pi\.org|python" + r"hosted|npm" + r"js\.|mav" + r"en\.org")
    for path in files:
        if (
            path.is_file()
            and path.suffix in (".py", ".md", ".toml", ".pyi", ".lock", "")
            and path.name not in ("uv.lock", ".git")
        ):
            found = pattern.search(path.read_text(errors="replace"))
            assert found is None, f"{path} names {found[0]}"
