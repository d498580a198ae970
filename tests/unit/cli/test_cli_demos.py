"""Demos by name."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from firesteel.cli.demos import stream as demo_stream
from firesteel.cli.demos import words as demo
from firesteel.cli.demos.catalog import DEFAULT, DEMOS, run_named
from firesteel.cli.main import app
from firesteel.cli.shared import complete_demo
from firesteel.errors import UsageError


def test_the_list_has_them_all():
    shown = CliRunner().invoke(app, ["demo", "--list"])
    assert [line.split()[0] for line in shown.stdout.splitlines()] == list(DEMOS)
    assert DEFAULT in DEMOS
    assert [name for name, _ in complete_demo("s")] == ["skew", "sort", "stream"]


def test_the_commands_that_are_shown_can_be_copied_from_any_folder(tmp_path, monkeypatch):
    """Into a shell, which parts what is not quoted."""
    monkeypatch.chdir(tmp_path)
    place = Path("my work 'ü' $x")
    place.mkdir()
    *_, printing = demo._what_next(place, "abc").splitlines()
    _, flag, code = shlex.split(printing)[-3:]
    assert flag == "-c"
    assert f'read_parquet("{place}/modules")' in code
    compile(code, "shown", "exec")
    assert str(place / "chk") in shlex.split(demo_stream._what_next(place / "chk"))
    shown = CliRunner().invoke(app, ["bundle", "-o", str(place / "a b.zip")])
    command = shown.stdout.partition("): ")[2].splitlines()[0]
    assert shlex.split(command) == ["spark-submit", "--py-files", str(place / "a b.zip"), "SCRIPT.py"]


def test_wrong_names_and_input_are_told(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"no demo 'skwe'\. Did you mean 'skew'\?"):
        run_named("skwe", None, None, {})
    with pytest.raises(UsageError, match="finds its input itself"):
        run_named("skew", None, None, {}, tmp_path)
    with pytest.raises(UsageError, match="There is no table customer and no table orders and no table lineitem"):
        run_named("tpch", tmp_path, None, {}, tmp_path)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(UsageError, match="pip install tpchgen-cli, or say where"):
        run_named("tpch", tmp_path, None, {})
