"""The walls of the house, read from the sources: which room may import which. (test_architecture loads them.)"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from tests.tracked_files import tracked_files
from tools.walls import ALLOWED, COMMON, NOT_FOR_SPARK

import firesteel

PACKAGE = Path(firesteel.__file__).parent
ROOT = PACKAGE.parents[1]
EXECUTOR_ROOMS = ("model", "results", "engine", "task", "connectors")
EXECUTOR_PACKAGES = {"numpy", "pyarrow"}
CONTROL_ROOMS = ("scheduler", "model", "options", "compile", "journal", "report", "simulation")


def modules(room: str) -> list[Path]:
    folder = PACKAGE / room
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [PACKAGE / f"{room}.py"]


def imports(path: Path, *, top_level: bool = False) -> frozenset[str]:
    """Full names that a module imports, those only for the type checker left out."""
    everywhere, outside = _imports(path)
    return outside if top_level else everywhere


@cache  # most walls look at all modules
def _imports(path: Path) -> tuple[frozenset[str], frozenset[str]]:
    """All, and those outside of functions."""
    everywhere: set[str] = set()
    outside: set[str] = set()

    def visit(node: ast.AST, *, inside: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                continue
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            names = _names(child)
            everywhere.update(names)
            if not inside:
                outside.update(names)
            visit(child, inside=inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))

    visit(ast.parse(path.read_text()), inside=False)
    return frozenset(everywhere), frozenset(outside)


def _names(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom) and node.module:
        inner = {f"{node.module}.{alias.name}" for alias in node.names}  # modules among them
        return inner if node.module == "firesteel" else {node.module, *inner}
    return set()


def room_of(name: str) -> str:
    return name.split(".")[1] if name.startswith("firesteel.") else ""


@pytest.mark.parametrize("room", ALLOWED)
def test_a_room_imports_only_the_rooms_it_may(room):
    for path in modules(room):
        for name in imports(path):
            if other := room_of(name):
                public = other[0].isupper() or other in ("col", "lit")  # the façade's names
                assert other in ALLOWED[room] | COMMON or (public and room == "cli"), (
                    f"{path.relative_to(PACKAGE)} imports {name}"
                )


@pytest.mark.parametrize("room", ALLOWED)
def test_a_room_uses_each_of_its_permissions(room):
    used = {room_of(name) for path in modules(room) for name in imports(path)}
    assert ALLOWED[room] - {room} <= used, "a wall is as high as the imports allow"


def test_the_data_plane_does_not_know_who_calls_it():
    for path in modules("spark"):
        assert not {room_of(name) for name in imports(path)} & NOT_FOR_SPARK, path


def test_every_room_has_its_wall():
    rooms = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in PACKAGE.rglob("*.py")}
    assert {room for room in rooms if not room.startswith("__")} == set(ALLOWED) | COMMON | {"spark"}


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
    for path in [*modules("scheduler"), *modules("model")]:
        assert not imports(path) & forbidden, path


def folders() -> list[Path]:
    return [path.parent for path in PACKAGE.rglob("__init__.py")]


def test_every_folder_says_what_it_is_for_and_where_to_begin():
    for folder in folders():
        text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
        assert text, folder
        for name in re.findall(r"[Bb]egin with\s``(\w+)", text):
            assert (folder / name).is_dir() or (folder / f"{name}.py").exists(), f"{folder} has no {name}"


def test_no_module_imports_itself_by_way_of_others():
    """Imports inside functions count, too: a cycle that is put off is still one."""
    arrows = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(("firesteel", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
        arrows[name] = imports(path)
    within = {name: {other for other in found if other in arrows} for name, found in arrows.items()}
    TopologicalSorter(within).prepare()  # raises CycleError, which names them


def test_no_room_imports_itself_by_way_of_others():
    rooms = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in PACKAGE.rglob("*.py")} - {"__init__"}
    found = {room: {room_of(name) for path in modules(room) for name in imports(path)} for room in rooms}
    TopologicalSorter({room: others & rooms - {room} for room, others in found.items()}).prepare()


def test_every_public_name_can_be_imported():
    for name in firesteel.__all__:
        assert getattr(firesteel, name) is not None
    with pytest.raises(AttributeError):
        _ = firesteel.nothing_like_this


def test_no_file_names_a_registry_or_a_place_on_a_developers_machine():
    pattern = re.compile(r"/wor" + r"k/|py" + r"pi\.org|python" + r"hosted|npm" + r"js\.|mav" + r"en\.org")
    for path in tracked_files():
        if path.suffix in (".py", ".md", ".toml", ".pyi", ".lock", "") and path.name not in ("uv.lock", ".git"):
            found = pattern.search(path.read_text(errors="replace"))
            assert found is None, f"{path} names {found[0]}"


def test_what_git_does_not_track_is_no_file_of_the_project(tmp_path):
    (tmp_path / "docs").mkdir()
    for name in ("mine.py", "ours.py", "docs/page.md", "docs/draft.md", "gone.py"):
        (tmp_path / name).touch()
    everything = tracked_files(root=tmp_path)
    for command in (["init", "-q"], ["add", "ours.py", "gone.py", "docs/page.md"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    (tmp_path / "gone.py").unlink()
    assert [path.name for path in tracked_files(root=tmp_path)] == ["page.md", "ours.py"]
    assert tracked_files("docs", tmp_path) == [tmp_path / "docs" / "page.md"]
    assert {path.name for path in everything} == {"mine.py", "ours.py", "page.md", "draft.md", "gone.py"}
