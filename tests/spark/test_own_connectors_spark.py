"""The examples and the page on own connectors run as they stand."""

from __future__ import annotations

import gzip
import re
import sqlite3
import sys
from pathlib import Path

import pytest

from firesteel.api.environment import set_defaults
from firesteel.cli.script import run_script

pytestmark = [pytest.mark.spark, pytest.mark.full]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def logs(tmp_path):
    paths = []
    for k in range(4):
        paths.append(tmp_path / f"access.log.{k}.gz")
        with gzip.open(paths[-1], "wt") as file:
            for i in range(300):
                status = 503 if i % 10 == k else 200
                file.write(f'10.0.0.{k} - - [22/Nov/2026:13:00:07 +0000] "GET /p{i % 10} HTTP/1.1" {status} {i}\n')
    return paths


def test_the_examples_run_as_they_stand(spark, logs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    set_defaults(options={"firesteel.progress": False})
    try:
        assert run_script(ROOT / "examples" / "own_source.py", [str(path) for path in logs]) == 0
        assert "/p3" in capsys.readouterr().out
        (tmp_path / "code.py").write_text("pass\npass\nx = 1\n")
        assert run_script(ROOT / "examples" / "own_sink.py", ["code.py"]) == 0
    finally:
        set_defaults()
    with sqlite3.connect("lines.db") as database:
        assert sorted(database.execute("select * from common_lines")) == [("pass", 2), ("x = 1", 1)]


def test_the_blocks_of_the_page_run(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "own-connectors.md").read_text(), re.S)
    names = {"__name__": "__main__"}  # so that classes go to executors by value
    set_defaults(options={"firesteel.progress": False})
    try:
        for block in blocks:
            exec(compile(block, "docs/own-connectors.md", "exec"), names)
    finally:
        set_defaults()
    assert names["primes_below_a_million"] == 78_498
    assert sorted((tmp_path / "out.json").read_text().splitlines()) == ['{"k": 1}', '{"k": 2}']
    assert names["orders_read"] == 100
