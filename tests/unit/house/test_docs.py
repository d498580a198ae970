"""The written pages stay true: generated parts, links, examples, the lock."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from tests.tracked_files import tracked_files
from tools import docs
from tools.dev import TASKS, locked_packages

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(path for path in tracked_files("docs") if path.suffix == ".md")]


def test_generated_pages_are_up_to_date():
    for path, text in docs.pages().items():
        assert path.read_text() == text, f"{path.name} is stale: run ./dev docs"


def test_a_page_without_its_marks_is_an_error():
    with pytest.raises(ValueError, match="lacks '<!-- generated: x -->'"):
        docs.replace_part("text", "x", "content")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_python_examples_are_python(page):
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.S):
        ast.parse(code)


def test_the_readmes_example_is_the_one_in_examples():
    assert (ROOT / "examples" / "report.py").read_text() in (ROOT / "README.md").read_text()


def test_the_tasks_that_pages_name_exist():
    for page in PAGES:
        for name in re.findall(r"\./dev ([a-z]+)", page.read_text()):
            assert name in TASKS, f"{page.name}: ./dev {name}"


def test_the_lock_holds_every_package_we_ask_for_and_no_host():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    wanted += [name for extra in project["project"]["optional-dependencies"].values() for name in extra]
    locked = locked_packages()
    for requirement in wanted:
        name = re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower()
        assert name in locked, f"{name} is not in requirements.lock: run ./dev lock"
    for name, block in locked.items():
        assert "--hash=sha256:" in block, name
        assert "://" not in block, name


def test_dev_lists_its_tasks_from_any_folder_and_refuses_others(tmp_path):
    link = tmp_path / "a link"
    link.symlink_to(ROOT / "dev")
    shown = subprocess.run([link], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert all(f"\n  {name} " in shown.stdout for name in TASKS)
    wrong = subprocess.run([link, "tset"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stderr) == (2, "There is no task 'tset'. Did you mean 'test'?\n")


def test_dev_without_a_python_says_what_to_install(tmp_path):
    for tool in ("sh", "dirname", "readlink"):
        found = subprocess.run(["sh", "-c", f"command -v {tool}"], capture_output=True, text=True, check=True)
        (tmp_path / tool).symlink_to(found.stdout.strip())
    copy = tmp_path / "project" / "dev"
    copy.parent.mkdir()
    copy.write_bytes((ROOT / "dev").read_bytes())
    copy.chmod(0o755)
    shown = subprocess.run([copy], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert shown.returncode == 2
    assert shown.stderr.startswith("Firesteel needs Python 3.11 or newer")
