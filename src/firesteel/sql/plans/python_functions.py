"""Python functions of a plan, as our tasks call them: all that Spark would tell its Python workers."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firesteel.plan.expr import Expr, Unsupported
from firesteel.sql.plans.versions import checked_version

MOST_BROADCAST = 16 << 20
"""Bytes of broadcast variables that are sent with a step's program."""


@dataclass(frozen=True, slots=True)
class PythonSettings:
    """A session's settings of Python functions. ``settings``: those that the JVM passes on; the others are limits of a batch."""

    settings: Mapping[str, str]
    max_rows: int
    max_bytes: int
    by_name: bool
    """The names of columns that ``mapInArrow`` gives are checked."""


def python_settings(session: Any) -> PythonSettings:
    """Raises Unsupported for what our tasks do not do: profiles, logs, another interpreter, older Sparks' functions."""
    version = checked_version(session)
    if not version.python_functions:
        raise Unsupported(f"Python functions in plans of Spark {version.name} are Spark's")
    try:
        conf = session._jsparkSession.sessionState().conf()
        lines = session._jvm.org.apache.spark.sql.execution.python.ArrowPythonRunner.getPythonRunnerConfMap(conf)
        pairs = [line.partition(" -> ") for line in lines.mkString("\n").split("\n")]
        max_rows, max_bytes = int(conf.arrowMaxRecordsPerBatch()), int(conf.arrowMaxBytesPerBatch())
        special = conf.pythonUDFProfiler().isDefined() or conf.pysparkWorkerPythonExecutable().isDefined()
        by_name = bool(conf.pysparkArrowValidateSchema())
    except Exception as error:
        raise Unsupported(f"Spark's settings of Python functions cannot be read: {error}") from error
    if special or session.conf.get("spark.sql.pyspark.worker.logging.enabled", "false") != "false":
        raise Unsupported(
            "Python functions that are profiled or logged, or have an interpreter of their own, are Spark's"
        )
    if max_rows <= 0 or max_bytes <= 0:
        raise Unsupported("batches without a limit are Spark's (spark.sql.execution.arrow.maxRecordsPerBatch)")
    return PythonSettings({name: value for name, _, value in pairs}, max_rows, max_bytes, by_name)


def command_of(function: Any, session: Any) -> bytes:
    """The pickled function. Raises Unsupported where our tasks lack something that it needs."""
    if not isinstance(function, Expr) or function.cls != "PythonFunction":
        raise Unsupported("this kind of Python function is not taken over")
    context = session.sparkContext
    if function["executable"] != context.pythonExec or function["version"] != context.pythonVer:
        raise Unsupported("a Python function of another interpreter is not taken over")
    environment = {name: value for name, _, value in (line.partition("=") for line in function["environment"])}
    if not environment.items() <= context.environment.items():
        raise Unsupported("a Python function with environment variables of its own is not taken over")
    if not set(function["includes"]) <= set(context._python_includes):
        raise Unsupported("a Python function with files of its own is not taken over")
    command = base64.b64decode(function["command"])
    for name, what in _REFUSED.items():
        if name in command:
            raise Unsupported(f"a Python function with {what} is not taken over")
    return command


_REFUSED = {b"_deserialize_accumulator": "an accumulator", b"TaskContext": "Spark's TaskContext"}
"""Names that stand in the pickles of functions with what our tasks cannot give them."""


def broadcasts_of(functions: list[Expr], session: Any) -> tuple[tuple[int, bytes], ...]:
    """The broadcast variables of the functions, as they were pickled on this machine."""
    found = dict(line.split(" ", 1) for function in functions for line in function["broadcasts"])
    if not found:
        return ()
    if session.sparkContext.getConf().get("spark.io.encryption.enabled", "false") != "false":
        raise Unsupported("encrypted broadcast variables are not taken over")
    try:
        if sum(Path(path).stat().st_size for path in found.values()) > MOST_BROADCAST:
            raise Unsupported(f"broadcast variables of more than {MOST_BROADCAST >> 20} MiB are not taken over")
        read = {int(number): Path(path).read_bytes() for number, path in found.items()}
    except OSError as error:
        raise Unsupported(f"a broadcast variable cannot be read: {error}") from error
    for value in read.values():
        for name, what in _REFUSED.items():
            if name in value:
                raise Unsupported(f"a broadcast variable with {what} is not taken over")
    return tuple(read.items())
