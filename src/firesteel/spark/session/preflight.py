"""Before a job on a cluster: does every executor have what the job needs? One cheap Spark job, one sentence per lack.

Checked again only when the executors or what is asked for have changed.
"""

from __future__ import annotations

import importlib.util
import pickletools
import platform
import shutil
import sys
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from firesteel.errors import UsageError
from firesteel.humanize import minor_version
from firesteel.results.storage.filesystem import first_line, retried, shown
from firesteel.spark.driver.spark_errors import read_error
from firesteel.spark.placement.node_names import learn
from firesteel.spark.session.probe import Findings, Probe
from firesteel.spark.session.sessions import is_local
from firesteel.spark.slots import workers
from firesteel.spark.storage.directories import open_root

PROBES_PER_SLOT = 2
STEPS_WITH_PANDAS = ("MapInPandas", "ApplyInPandas")
"""Of our operators, those for which executors need pandas."""
_DESCRIPTION = "spark.job.description"
_PROBE_FILE = "firesteel-probe-"


@dataclass(frozen=True, slots=True)
class Executors:
    """All executors together. ``memory``: the least of their machines (bytes), 0 if it was not looked at; ``engine``: all have DuckDB."""

    memory: int = 0
    engine: bool = True


_known: dict[tuple[Any, ...], Executors] = {}
"""By what was asked."""


def preflight(
    context: Any,
    modules: tuple[str, ...],
    root: str,
    filesystem: str | None = None,
    node_variable: str | None = None,
) -> Executors:
    """Checks all executors; returns what they have.

    ``modules``: the user's modules that steps refer to by name. ``root``: the storage for results;
    ``filesystem``: the function that opens it. ``node_variable``: the environment variable that names an executor's node;
    what it says is remembered. Raises UsageError with what is missing, and where.
    """
    if is_local(context) and runs_our_interpreter(context):
        return Executors()
    asked = (context.applicationId, frozenset(executors(context)), modules, root, filesystem, node_variable)
    if asked not in _known:
        findings = _ask(context, modules, root, filesystem, node_variable)
        check(findings, root)
        workers.learn(context.applicationId, findings)
        if node_variable is not None:
            learn(context.applicationId, node_variable, [f.place for f in findings if f.place is not None])
        now = executors(context)  # more may have registered meanwhile
        if len({f.executor for f in findings}) >= len(now):
            asked = (context.applicationId, frozenset(now), modules, root, filesystem, node_variable)
        memory = min((f.memory for f in findings if f.memory), default=0)
        _known[asked] = Executors(memory, all(f.has_engine for f in findings))
    return _known[asked]


def check(findings: Iterable[Findings], root: str) -> None:
    """Raises UsageError for the first thing that some executor lacks."""
    ours = platform.python_version()
    for f in findings:
        if minor_version(f.python) != minor_version(ours):
            raise UsageError(
                f"Executors on {f.host} run Python {f.python}, and the driver runs {ours}.",
                hint="Set PYSPARK_PYTHON to an interpreter of the same minor version on every machine.",
            )
        for name, here in (("pyarrow", pa.__version__), ("numpy", np.__version__)):
            there = f.versions.get(name)
            if there is None:
                raise UsageError(
                    f"Executors on {f.host} have no {name} (Python {f.python}).",
                    hint=f"Install {name} {here} there, or set PYSPARK_PYTHON to an interpreter that has it.",
                )
            if name == "numpy" and there.partition(".")[0] != here.partition(".")[0]:
                raise UsageError(f"Executors on {f.host} have numpy {there}, and the driver has {here}.")
        if f.missing:
            names = ", ".join(f"'{m}'" for m in f.missing)
            raise UsageError(
                f"The pipeline's functions need {names}, which executors on {f.host} cannot import.",
                hint="Install it there, ship it with spark.sparkContext.addPyFile(...), or define the function in the script itself.",
            )
        if f.problem:
            raise UsageError(
                f"Results between steps would lie at {root}, but {f.host} {f.problem}.",
                hint="Set firesteel.storage.directory to a place that the driver and every executor share.",
            )


def runs_our_interpreter(context: Any) -> bool:
    """True if the Python workers of this machine run the driver's interpreter, with its packages."""
    worker, own = shutil.which(context.pythonExec), shutil.which(sys.executable)
    return worker is not None and own is not None and _environment(worker) == _environment(own)


def _environment(interpreter: str) -> tuple[Path, Path]:
    """Equal for the names that one environment has for its interpreter, such as python and python3."""
    return Path(interpreter).parent, Path(interpreter).resolve()


def executors(context: Any) -> list[str]:
    """host:port of the executors that Spark knows now; none on a local master."""
    found = context._jsc.sc().statusStore().executorList(True)
    summaries = [found.apply(i) for i in range(found.size())]
    return sorted(str(e.hostPort()) for e in summaries if e.id() != "driver")


def modules_of(program: bytes) -> set[str]:
    """Modules that a pickle refers to by name and that come neither with Python nor with us."""
    names: set[str] = set()
    pushed: list[str | None] = []  # what went on the stack, None for anything but a string
    memo: list[str | None] = []
    for opcode, argument, _position in pickletools.genops(program):
        if opcode.name == "GLOBAL":
            names.add(str(argument).partition(" ")[0])
        elif opcode.name == "STACK_GLOBAL" and len(pushed) >= 2 and pushed[-2] is not None:
            names.add(pushed[-2])
            if pushed[-1] in STEPS_WITH_PANDAS and pushed[-2].startswith("firesteel."):
                names.add("pandas")
        if opcode.name == "MEMOIZE":
            memo.append(pushed[-1] if pushed else None)
        elif opcode.name in ("BINGET", "LONG_BINGET"):
            index = int(argument or 0)
            pushed.append(memo[index] if index < len(memo) else None)
        else:
            pushed.append(argument if "UNICODE" in opcode.name else None)
    return {n for n in names if _is_users(n)}


def _is_users(module: str) -> bool:
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top in ("firesteel", "pyspark", "pyarrow", "numpy", "__main__", "builtins"):
        return False
    with suppress(ImportError, ValueError):
        return importlib.util.find_spec(module) is not None
    return False


def _ask(
    context: Any, modules: tuple[str, ...], root: str, filesystem: str | None = None, node_variable: str | None = None
) -> list[Findings]:
    fs, path = open_root(root, filesystem)
    name = f"{_PROBE_FILE}{uuid.uuid4().hex[:12]}"

    def write() -> None:
        fs.create_dir(path, recursive=True)
        with fs.open_output_stream(f"{path}/{name}") as stream:
            stream.write(b"firesteel")

    try:
        retried(write)
    except OSError as error:
        raise UsageError(f"Results between steps cannot lie at {shown(root)}: {first_line(error)}.") from error
    n = max(2, context.defaultParallelism, len(executors(context))) * PROBES_PER_SLOT
    tag = f"firesteel-{name}"
    described = context.getLocalProperty(_DESCRIPTION)
    context.addJobTag(tag)
    context.setJobDescription("firesteel: looks at every executor before the job")
    try:
        probe = Probe(modules, root, name, filesystem, node_variable)
        return list(context.runJob(context.parallelize(range(n), n), probe))
    except KeyboardInterrupt:
        context.cancelJobsWithTag(tag)
        raise
    except Exception as error:
        raise UsageError(_worker_failure(context, error)) from error
    finally:
        context.setJobDescription(described)
        context.removeJobTag(tag)
        with suppress(OSError):
            retried(lambda: fs.delete_file(f"{path}/{name}"))


def _worker_failure(context: Any, error: Exception) -> str:
    text = str(error)
    if "PYTHON_VERSION_MISMATCH" in text or "different minor version" in text:
        return (
            f"Python workers run another Python than the driver ({platform.python_version()}). "
            "Set PYSPARK_PYTHON to an interpreter of the same minor version on every machine."
        )
    if "Cannot run program" in text:
        return f"Executors have no Python at '{context.pythonExec}'. Set PYSPARK_PYTHON to the interpreter that every machine has."
    if "No module named 'firesteel" in text:
        return (
            "Executors cannot import Firesteel, although it was shipped to them; is addPyFile allowed on this cluster?"
        )
    return f"Python workers do not start on the executors: {read_error(error).sentence}"
