"""Spark sessions: making one that suits us, and checking one that was given.

A session that we make runs jobs FAIR, talks to its Python workers over Unix sockets, uses the driver's interpreter for
them and keeps the console quiet. A given session is checked and used; nothing of it is stopped or replaced, and what is set for a
moment (``own_workers``) is taken back.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from firesteel.errors import UsageError
from firesteel.options import SPECULATIVE_ENABLED
from firesteel.spark.session.gateway import Start, find_java_home
from firesteel.spark.session.versions import (
    INTERRUPT_HANDLERS,
    check_pyarrow,
    check_spark,
    installed_pyspark,
    newest_java,
)

_POOLS = Path(__file__).with_name("fairscheduler.xml")
_ANYWHERE = {
    "spark.scheduler.mode": "FAIR",
    **(
        {"spark.scheduler.allocation.file": f"file:{_POOLS}"} if _POOLS.is_file() else {}
    ),  # Hadoop's, which escapes nothing
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.task.killTimeout": "100ms",  # a killed task never ends by itself in that time, and its slot waits
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL = re.compile(r"local(\[\s*(?P<threads>\d+|\*)\s*\])?")
_MAX_FAILURES = "spark.task.maxFailures"
_begun: set[str] = set()
"""Applications that have begun a job."""
_NO_MASTER = "no master answers there, or it has refused the application."
ANSWER_SECONDS = 3.0
"""A standalone master must accept a connection within this time; else Spark would ask for more than a minute."""


_sockets: list[str] = []
"""Files of sockets that PySpark makes for each context and leaves behind."""


@atexit.register  # after what of ours ends jobs, which was registered later
def _remove_sockets() -> None:
    for path in _sockets:
        with suppress(OSError):
            Path(path).unlink()


def create_session(
    master: str | None = None,
    app_name: str = "firesteel",
    conf: Mapping[str, str] | None = None,
) -> Any:
    """A SparkSession on ``master`` (None: ``local[*]``), or the one this process already has.

    ``conf``: Spark settings that go over ours. Raises UsageError when there is no Java, or when Spark does not start
    or the process already runs Spark on another master.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    version = installed_pyspark()
    conf = conf or {}
    running = SparkContext._active_spark_context
    if running is not None:
        runs_on = str(running.master)
        if master is not None and not same_master(runs_on, master):
            raise UsageError(
                f"This process already runs Spark on '{said_master(runs_on)}', so it cannot start one on '{master}'.",
                hint="Stop that session first, or leave out the master to use it.",
            )
        return SparkSession.builder.getOrCreate()
    spark_conf = SparkConf(loadDefaults=False)
    wanted = master or "local[*]"
    settings = {**_settings(retrying(wanted, conf)), **conf}
    if master is None and "PYSPARK_GATEWAY_PORT" in os.environ:  # started by spark-submit, which has chosen the master
        wanted = "the master of spark-submit"
        settings = {key: value for key, value in settings.items() if key in _ANYWHERE}
    for key, value in settings.items():
        spark_conf.set(key, value)
    spark_conf.setAppName(app_name)
    if not _answers(settings.get("spark.master", "")):
        raise UsageError(f"Spark did not start on '{wanted}': {_NO_MASTER}")
    start = Start()

    def make_context() -> None:
        start.launch(SparkContext, spark_conf)
        server: Any = SparkContext(conf=spark_conf)._accumulatorServer
        if isinstance(server.server_address, str):
            _sockets.append(server.server_address)

    variables = _interpreter_variables(version)
    try:
        with _environment(variables):
            # On another thread, where PySpark cannot take over Ctrl-C: its handler cancels the user's own jobs too.
            start.run(make_context)
            return SparkSession.builder.config(conf=spark_conf).getOrCreate()
    except BaseException as error:
        words = start.jvm_words()
        told = _told(words or _first_line(error))  # before the JVM ends, which holds the words of its exception
        start.kill()
        start.forget(SparkContext)
        if isinstance(error, UsageError) or not isinstance(error, Exception):
            raise
        java = variables.get("JAVA_HOME", os.environ.get("JAVA_HOME"))
        raise UsageError(
            f"Spark did not start on '{wanted}': {told}",
            hint=f"Its JVM ended before it answered; it was started with JAVA_HOME={java}." if words and java else None,
        ) from error


def _answers(master: str) -> bool:
    """Returns False if the URL is one of a standalone cluster (``spark://host:port,host:port``) and nobody listens there."""
    if not master.startswith("spark://"):
        return True
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            return True  # Spark says what is wrong with it
        with (
            suppress(OSError, UnicodeError),
            socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS),
        ):
            return True
    return False


def retrying(master: str, conf: Mapping[str, str]) -> str:
    """The master with Spark's task retries, as any cluster has them: ``local[2]`` is ``local[2,4]``; others stay as they are.

    Without them, which is Spark's default on local masters, a Python worker that dies takes all tasks of its Spark job along.
    """
    local = _LOCAL.fullmatch(master)
    return f"local[{local['threads'] or 1},{conf.get(_MAX_FAILURES, '4')}]" if local else master


def said_master(master: str) -> str:
    """Without the retries that :func:`retrying` adds."""
    return re.sub(r"(local\[[^,]+),\d+\]", r"\1]", master)


def same_master(one: str, other: str) -> bool:
    return said_master(retrying(one, {})) == said_master(retrying(other, {}))


def check_session(session: Any) -> None:
    """Raises UsageError for what cannot run our jobs: Spark Connect, another Spark version, a stopped session, one whose
    tasks Spark copies."""
    module = type(session).__module__
    if module.startswith("pyspark.sql.connect"):
        raise UsageError(
            "This is a Spark Connect session, which gives no access to RDDs, job tags and accumulators.",
            hint="Use a classic session: SparkSession.builder.master(...).getOrCreate() without remote().",
        )
    if not module.startswith("pyspark.sql") or not hasattr(session, "sparkContext"):
        raise UsageError(f"A SparkSession is needed here, not a {type(session).__name__}.")
    context = session.sparkContext
    if context._jsc is None or context._jsc.sc().isStopped():
        raise UsageError("This Spark session has been stopped.", hint="Make a new one and a new ExecutionEnvironment.")
    check_spark(context.version)
    check_pyarrow()
    if setting(context, "spark.speculation", "false") == "true":
        raise UsageError(
            "This session has spark.speculation=true: Spark would start second copies of tasks, which Firesteel takes for "
            "tasks that lost their executor.",
            hint=f"Start it with spark.speculation=false; {SPECULATIVE_ENABLED.key}=true does the same for Firesteel's jobs.",
        )


def is_local(context: Any) -> bool:
    """True if driver and executor are one process (``local``, ``local[*]``, ...; not ``local-cluster``)."""
    return bool(re.fullmatch(r"local(\[.*\])?", context.master))


def local_slots(context: Any) -> int:
    """Tasks that run at once on a local master."""
    match = re.search(r"\[\s*(\d+|\*)", context.master)
    if match is None:
        return 1
    return (os.cpu_count() or 1) if match[1] == "*" else int(match[1])


def setting(context: Any, key: str, default: Any = None) -> Any:
    """One of an application's settings. ``getConf`` copies all of them, in a hundred calls to the JVM."""
    return context._conf.get(key, default)


def grows(context: Any) -> bool:
    """True if Spark asks for executors by what waits (dynamic allocation)."""
    return str(setting(context, "spark.dynamicAllocation.enabled", "false")).lower() == "true"


@contextmanager
def own_interrupts() -> Generator[None]:
    """While we wait on the main thread, Ctrl-C is a plain KeyboardInterrupt: PySpark's handler cancels all jobs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if getattr(before, "__module__", "") not in INTERRUPT_HANDLERS:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def with_settings(session: Any) -> Generator[None]:
    """Gives the session's settings to tasks that this thread has Spark start meanwhile. Spark itself gives them to tasks of its own queries alone."""
    context = session.sparkContext._jsc.sc()
    before = context.getLocalProperties().clone()
    known = before.clone()
    known.putAll(session._jsparkSession.sessionState().conf().settings())
    known.putAll(before)
    context.setLocalProperties(known)
    try:
        yield
    finally:
        context.setLocalProperties(before)


def _settings(master: str) -> dict[str, str]:
    settings = {**_ANYWHERE, "spark.master": master}
    if not os.environ.get("SPARK_CONF_DIR"):
        quiet = Path(__file__).with_name("log4j2.properties")
        if quiet.is_file():  # not so in a zip
            settings["spark.driver.defaultJavaOptions"] = f"-Dlog4j2.configurationFile={quiet.as_uri()}"
    if master.startswith("local") and not master.startswith("local-cluster"):
        settings |= {
            "spark.ui.enabled": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
        }
        if shutil.which(os.environ.get("PYSPARK_PYTHON", sys.executable)) == sys.executable:
            settings["spark.python.daemon.module"] = "firesteel.task.executor.daemon"
            settings["spark.executorEnv.PYTHONPATH"] = str(Path(__file__).parents[2])
    return settings


def _interpreter_variables(spark: str) -> dict[str, str]:
    variables = {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}
    variables["PYSPARK_DRIVER_PYTHON"] = os.environ.get("PYSPARK_DRIVER_PYTHON", sys.executable)
    newest = newest_java(spark)
    home = find_java_home(newest, "Spark" if newest is None else f"Spark {spark}")
    return variables if home is None else {**variables, "JAVA_HOME": home}


@contextmanager
def _environment(variables: Mapping[str, str]) -> Generator[None]:
    before = {key: os.environ.get(key) for key in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def _told(text: str) -> str:
    if "stopped SparkContext" in text:  # what came of it, and not why: that Spark only logs
        return _NO_MASTER
    return f"{text.rstrip('.')}."


def _first_line(error: BaseException) -> str:
    java = getattr(error, "java_exception", None)
    text = ""
    with suppress(Exception):  # the JVM may be gone, and its exception's words with it
        text = str(error) if java is None else str(java.getMessage() or java.toString())
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__


def begins_cold(context: Any) -> bool:
    """Returns True, once for each application, where no Python worker can have been started yet: on a local master, whose executors
    nobody looks at beforehand."""
    application: str = context.applicationId
    is_first = application not in _begun
    _begun.add(application)
    return is_first and is_local(context)


_LOGGERS = ("", "py4j.clientserver", "py4j.java_gateway")
"""py4j's loggers of these; the root logger takes some of them."""
_SAID = (
    "KeyboardInterrupt while sending command",
    "Exception while sending command",
    "Exception occurred while shutting",
)


class _AfterAnInterrupt(logging.Filter):
    """Leaves out what py4j says of an interrupt, and of the connections that break off after it."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupted = False

    def filter(self, record: logging.LogRecord) -> bool:
        if not str(record.msg).startswith(_SAID):
            return True
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        self.interrupted = self.interrupted or _is_interrupt(error)
        return not self.interrupted


def _is_interrupt(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


@contextmanager
def without_py4j_traces() -> Generator[None]:
    """Meanwhile an interrupt leaves nothing but itself, and no handler at the root logger, which py4j's words would put there."""
    listening = _AfterAnInterrupt()
    root = logging.getLogger()
    before = list(root.handlers)
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(listening)
    try:
        yield
    finally:
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(listening)
        if listening.interrupted and not before:
            for handler in list(root.handlers):
                root.removeHandler(handler)
