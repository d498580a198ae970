"""What ``./dev test --matrix`` chooses and tells; that it runs is shown by running it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tools import matrix
from tools.matrix import Combination, Result

ROOT = Path(__file__).parents[3]


def test_the_usual_ones_have_each_spark_with_each_python_and_each_java_that_fits():
    usual = matrix.usual()
    assert len(usual) == len(set(usual)) == 15
    assert {(c.spark, c.python) for c in usual} == {(s, p) for s in matrix.SPARKS for p in matrix.PYTHONS}
    fitting = {(s, j) for s in matrix.SPARKS for j in matrix.JAVAS if matrix.runs_on(s, j)}
    assert {(c.spark, c.java) for c in usual} == fitting


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("3.5", {c for c in matrix.usual() if c.spark == "3.5"}),
        ("3.5, Python3.11", {c for c in matrix.usual() if (c.spark, c.python) == ("3.5", "3.11")}),
        ("java25", {c for c in matrix.usual() if c.java == "25"}),
        ("4.3,3.13,17", {Combination("4.3", "3.13", "17")}),
        ("3.5,3.11,java25", set()),
        ("all", set(matrix.every())),
        (None, set(matrix.usual())),
    ],
)
def test_words_choose(words, found):
    assert set(matrix.chosen(words)) == found


def test_a_word_that_is_no_version_is_refused():
    with pytest.raises(ValueError, match=r"'2\.4' is no version of the matrix"):
        matrix.chosen("2.4")


@pytest.mark.parametrize(
    ("output", "numbers"),
    [
        ("....\n21 passed in 174.51s (0:02:54)\n", (21, 0)),
        ("FAILED tests/x.py::test_2_passed\n1 failed, 20 passed, 1 error in 174.51s\n", (20, 2)),
        ("no tests ran in 0.01s\n", (0, 0)),
        ("Segmentation fault\n", (0, 0)),
    ],
)
def test_pytests_closing_line_is_read(output, numbers):
    assert matrix.counted(output) == numbers


def test_what_is_not_obtainable_is_no_pass():
    one = Combination("3.5", "3.11", "17")
    results = [
        Result(one, "passed", "3.5.9", 21, 0, 99.6),
        Result(one, "failed", "3.5.9", 20, 1, 80.0),
        Result(one, matrix.NOT_OBTAINABLE, "no Python 3.11 here"),
    ]
    assert matrix.closing(results) == "1 passed, 1 failed, 1 not obtainable"
    lines = matrix.table(results).splitlines()
    assert lines[2] == "| 3.5.9 | 3.11 | 17 | passed | 21 | 0 | 100 |"
    assert lines[4] == "| 3.5 | 3.11 | 17 | not obtainable | no Python 3.11 here | | |"
    assert {line.count("|") for line in lines} == {8}


def test_the_last_results_are_told_with_what_was_not_run(tmp_path):
    tools = matrix.Tools(tmp_path, "uv", {}, {}, print)
    tools.home.mkdir()
    matrix.keep(tools, Result(Combination("3.5", "3.11", "17"), "failed", "3.5.9", 20, 1, 80.0))
    matrix.keep(tools, Result(Combination("3.5", "3.11", "17"), "passed", "3.5.9", 21, 0, 99.6))
    matrix.keep(tools, Result(Combination("4.3", "3.13", "17"), "passed", "4.3.0", 22, 0, 5.0))
    lines = matrix.recorded(tools).splitlines()
    assert "| 3.5.9 | 3.11 | 17 | passed | 21 | 0 | 100 |" in lines
    assert "| 4.3.0 | 3.13 | 17 | passed | 22 | 0 | 5 |" in lines
    assert sum("not run yet" in line for line in lines) == 13


def test_the_page_tells_of_each_usual_combination():
    page = (ROOT / "docs" / "versions.md").read_text()
    rows = re.findall(r"^\| ([\d.]+) \| ([\d.]+) \| (\d+) \| (\w[\w ]*) \|", page, re.MULTILINE)
    told = {Combination(".".join(spark.split(".")[:2]), python, java): result for spark, python, java, result in rows}
    assert set(matrix.usual()) <= told.keys() <= set(matrix.every())
    assert set(told.values()) <= {"passed", "failed", "not obtainable", "not run yet"}


def test_the_tests_it_names_are_there():
    for name in (*matrix.TESTS, *matrix.SQL_TESTS):
        path, _, function = name.partition("::")
        text = (ROOT / path).read_text()
        assert not function or f"def {function}(" in text, name


def test_a_python_that_cannot_be_had_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    failing = tmp_path / "uv"
    failing.write_text("#!/bin/sh\nexit 2\n")
    failing.chmod(0o755)
    tools = matrix.Tools(tmp_path, str(failing), {}, {}, print)
    with pytest.raises(matrix.NotObtainable, match=r"no Python 3\.99 here"):
        matrix.find_python(tools, "3.99")
    assert subprocess.run([failing], check=False).returncode == 2


def test_javas_are_told_apart_by_their_release_file(tmp_path):
    (tmp_path / "release").write_text('JAVA_RUNTIME_VERSION="25+36"\nJAVA_VERSION="25.0.2"\n')
    assert matrix.java_version(tmp_path) == "25"
    assert matrix.java_version(tmp_path / "none") is None
