"""The example of docs/local.md is the one in examples/, and its unit tests pass where they lie."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"


def test_the_example_and_its_tests_are_those_of_the_page():
    page = (ROOT / "docs" / "local.md").read_text()
    for name in ("order_totals.py", "test_order_totals.py"):
        assert (EXAMPLES / name).read_text() in page


def test_the_examples_tests_pass(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        str(tmp_path / "pytest.ini"),
        "test_order_totals.py",
    ]
    done = subprocess.run([sys.executable, *command], cwd=EXAMPLES, capture_output=True, text=True, check=False)
    assert "3 passed" in done.stdout, done.stdout
