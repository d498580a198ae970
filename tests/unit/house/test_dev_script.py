"""What ./dev decides before it runs a task."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tools import dev, touched


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A made-up project with an environment that is set up."""
    root = tmp_path / "a project"
    venv = root / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").write_text("")
    (venv / "pyvenv.cfg").write_text("version = 3.11.7\n")
    (root / "pyproject.toml").write_text("[project]\n")
    (root / "requirements.lock").write_text("a==1 \\\n    --hash=sha256:00\nuv==2 \\\n    --hash=sha256:11\n")
    for name, path in {
        "ROOT": root,
        "VENV": venv,
        "PYTHON": venv / "bin" / "python",
        "LOCK": root / "requirements.lock",
        "STAMP": venv / "firesteel-stamp.json",
    }.items():
        monkeypatch.setattr(dev, name, path)
    dev.STAMP.write_text(json.dumps({"key": dev.key(), "java": "/usr/bin/java", "java_home": None}))
    return root


def java(folder: Path, words: str, code: int = 0) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "java"
    path.write_text(f"#!/bin/sh\necho '{words}' >&2\nexit {code}\n")
    path.chmod(0o755)
    return str(path)


def test_an_environment_that_fits_is_left_alone(project):
    assert dev.stamp_fits("/usr/bin/java")


@pytest.mark.parametrize("changed", ["requirements.lock", "pyproject.toml", ".venv/pyvenv.cfg"])
def test_a_change_makes_it_set_up_again(project, changed):
    (project / changed).write_text("other")
    assert not dev.stamp_fits("/usr/bin/java")


def test_another_java_a_lost_python_or_a_broken_stamp_make_it_set_up_again(project):
    assert not dev.stamp_fits(None)
    dev.PYTHON.unlink()
    assert not dev.stamp_fits("/usr/bin/java")
    dev.STAMP.write_text("{")
    assert dev.stamp() == {}
    assert not dev.stamp_fits("/usr/bin/java")


def test_the_lock_is_taken_apart_by_package(project):
    blocks = dev.locked_packages()
    assert list(blocks) == ["a", "uv"]
    with dev.requirements({"uv": blocks["uv"]}) as file:
        assert Path(file).read_text() == "uv==2 \\\n    --hash=sha256:11\n"
    assert not Path(file).exists()


@pytest.mark.parametrize(
    ("words", "code", "new"),
    [
        ('openjdk version "17.0.10" 2024-01-16', 0, True),
        ('openjdk version "21" 2023-09-19', 0, True),
        ('java version "1.8.0_392"', 0, False),
        ('openjdk version "11.0.2"', 0, False),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", 1, False),
    ],
)
def test_which_java_will_do(tmp_path, words, code, new):
    assert dev.is_new_java(java(tmp_path, words.replace("'", ""), code)) is new
    assert dev.is_new_java(None) is False
    assert dev.is_new_java(str(tmp_path / "missing")) is False


def test_java_home_goes_before_the_path(tmp_path, monkeypatch):
    by_path, by_home = java(tmp_path / "p", "x"), java(tmp_path / "h" / "bin", "x")
    monkeypatch.setenv("PATH", str(tmp_path / "p"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert dev.find_java() == by_path
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "h"))
    assert dev.find_java() == by_home
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert dev.find_java() is None


def test_a_task_sees_no_other_python_or_spark(project, monkeypatch):
    monkeypatch.setenv("SPARK_HOME", "/opt/spark-2.4")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python2")
    monkeypatch.setenv("HOME", "/home/me")
    variables = dev.environment()
    assert not {"SPARK_HOME", "PYTHONPATH", "PYSPARK_PYTHON"} & set(variables)
    assert variables["PATH"].split(os.pathsep)[0] == str(project / ".venv" / "bin")
    assert variables["HOME"] == "/home/me"


def test_the_bundled_java_is_the_tasks_java_where_there_is_no_other(project, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert "JAVA_HOME" not in dev.environment()
    dev.STAMP.write_text(json.dumps({"java_home": "/venv/jre"}))
    assert dev.environment()["JAVA_HOME"] == "/venv/jre"


def test_installers_get_a_home_of_their_own_where_the_users_cannot_be_written(project, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert dev.set_up_environment()["HOME"] == str(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "missing"))
    assert dev.set_up_environment()["HOME"] == str(project / ".venv" / "home")


@pytest.mark.parametrize(
    ("arguments", "codes", "runs", "code"),
    [
        ([], (0, 0), 2, 0),
        ([], (1, 0), 2, 1),
        ([], (0, 1), 2, 1),
        (["-x"], (1, 0), 1, 1),
        (["-k", "word"], (5, 0), 2, 0),
        (["-k", "word"], (5, 5), 2, 5),
    ],
)
def test_test_runs_everything_the_quick_ones_on_all_cores(monkeypatch, arguments, codes, runs, code):
    ran: list[tuple[str, ...]] = []
    left = iter(codes)
    called: list[list[object]] = []
    monkeypatch.setattr(dev, "run_pytest", lambda *parts: ran.append(parts) or next(left))
    monkeypatch.setattr(dev, "call", called.append)
    with pytest.raises(SystemExit) as ended:
        dev.test(arguments)
    assert ended.value.code == code
    assert called == [[dev.PYTHON, "tools/spark_archive.py"]] * (runs - 1), "made before Spark's tests, not here"
    assert [parts[-len(of) :] for parts, of in zip(ran, [dev.QUICK_TESTS, dev.SPARK_TESTS], strict=False)] == [
        dev.QUICK_TESTS,
        dev.SPARK_TESTS,
    ][:runs]
    assert all(parts[:1] == ("-n",) for parts in ran)
    assert all(set(arguments) <= set(parts) for parts in ran)


def test_test_runs_what_it_is_told(project, monkeypatch):
    (project / "tests/unit").mkdir(parents=True)
    (project / "tests/unit/test_a.py").write_text("")
    became: list[tuple[str, ...]] = []
    monkeypatch.setattr(dev, "become", lambda *parts, at_root: became.append(parts))
    monkeypatch.setattr(dev, "run_pytest", lambda *_: 0)
    with pytest.raises(SystemExit):
        dev.test(["tests/unit/test_a.py::test_b"])
    assert became == [("-m", "pytest", "tests/unit/test_a.py::test_b")]


def test_a_run_ends_with_a_line_for_each_part(monkeypatch, capsys):
    left = iter([0, 1])
    monkeypatch.setattr(dev, "run_pytest", lambda *_: next(left))
    monkeypatch.setattr(dev, "call", lambda *_: True)
    with pytest.raises(SystemExit):
        dev.test([])
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("Tests without Spark: passed (")
    assert second.startswith("Tests on Spark and on clusters: FAILED: see above (")


def test_an_interrupted_run_waits_for_pytest(monkeypatch, project):
    """Which ends its workers, Sparks and clusters itself."""
    waited = []

    class Pytest:
        def __init__(self, *_, **__):
            pass

        def wait(self):
            waited.append(len(waited))
            if len(waited) == 1:
                raise KeyboardInterrupt
            return 2

        def kill(self):
            assert waited == [0, 1]

    monkeypatch.setattr(dev.subprocess, "Popen", Pytest)
    with pytest.raises(KeyboardInterrupt):
        dev.run_pytest("tests/unit")
    assert waited == [0, 1]


def test_tests_keep_bytecode_in_the_environment(project, monkeypatch):
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    told = dev.test_environment()
    assert "PYTHONDONTWRITEBYTECODE" not in told
    assert told["PYTHONPYCACHEPREFIX"] == str(project / ".venv" / "bytecode")


@pytest.mark.parametrize(
    ("paths", "folders"),
    [
        (["CHANGELOG.md"], []),
        (["src/firesteel/scheduler/factory.py"], ["tests/unit", "tests/property"]),
        (
            ["src/firesteel/spark/driver/loop.py"],
            ["tests/unit", "tests/property", "tests/jobs", "tests/spark", "tests/cluster"],
        ),
        (["src/firesteel/ui/pages/files/ui.css"], ["tests/unit", "tests/property", "tests/browser"]),
        (["tests/spark/test_sort.py", "README.md"], ["tests/unit", "tests/spark"]),
    ],
)
def test_what_a_change_touches(paths, folders):
    assert touched.folders_of(paths) == folders


def test_a_change_is_told_by_git_or_not_at_all(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    said = []
    assert touched.tests_of(tmp_path, said.append) == [] and "cannot be told" in said[0]

    def git(*arguments):
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    git("commit", "--allow-empty", "-m", "first")
    (tmp_path / "tests/unit").mkdir(parents=True)
    (tmp_path / "tests/unit/tést.py").write_text("")
    git("add", ".")
    git("commit", "-m", "second")
    assert touched.changed_paths(tmp_path) == ["tests/unit/tést.py"]
    assert touched.tests_of(tmp_path, said.append) == ["tests/unit"]
