"""Messages and help name what a user of the installed package has: no file of the repository, and no package index that lacks Firesteel."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from firesteel.extras import LIBRARIES

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "src" / "firesteel"
UNKNOWN = re.compile(
    r"\b(?:docs|tests|benchmarks|examples|tools)/|README|CHANGELOG|\.md\b|\./dev\b|firesteel\[|pip install [\"']?firesteel"
)
"""What an installed package does not come with."""


def said(source: str, *, to_users: bool) -> Iterator[str]:
    """The texts of a module. ``to_users``: with its docstrings, which ``help()`` shows; else without what stands alone."""
    tree = ast.parse(source)
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (to_users or id(node) not in alone):
            yield node.value


def test_no_message_names_a_file_of_the_repository():
    found = []
    for file in sorted(SOURCES.rglob("*.py")):
        text = file.read_text()
        if UNKNOWN.search(text):
            texts = said(text, to_users=file.is_relative_to(SOURCES / "api"))
            found += [
                f"{file.relative_to(ROOT)}: {match[0]} in {one!r}" for one in texts if (match := UNKNOWN.search(one))
            ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text", ['raise E(f"See docs/{x}.md")', 'hint = "pip install firesteel"', "h = 'firesteel[ui]'"]
)
def test_such_a_message_is_found(text):
    assert any(UNKNOWN.search(one) for one in said(f'"""docs/a.md"""\n{text}', to_users=False))


def test_a_docstring_is_no_message_outside_of_the_api():
    assert not list(said('"""docs/a.md"""', to_users=False))
    assert list(said('"""docs/a.md"""', to_users=True)) == ["docs/a.md"]


def test_no_page_installs_firesteel_from_an_index():
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        assert not re.search(r"pip install [\"']?firesteel|firesteel\[\w+\]", page.read_text()), page.name


def test_the_libraries_of_the_extras_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {extra: tuple(names) for extra, names in project["optional-dependencies"].items()} == LIBRARIES
