"""The blocks of docs/steps.md, one after another, as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.spark
PAGE = Path(__file__).resolve().parents[2] / "docs" / "steps.md"


def test_every_block_runs(env, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"env": env}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(blocks) == 5
    for number, block in enumerate(blocks):
        exec(compile(block, f"steps.md, block {number}", "exec"), names)
    assert " |-- n: int64 (nullable = true)" in capsys.readouterr().out
    assert len(list((tmp_path / "three").glob("*.parquet"))) == 3
    assert sum(pq.read_table(path).num_rows for path in (tmp_path / "by-n").glob("*.parquet")) == 1000
