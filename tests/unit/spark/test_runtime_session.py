"""Sessions: what is refused, what is set in those we make, and whose Ctrl-C it is. Nothing here starts Spark."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from types import SimpleNamespace
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

from firesteel import ExecutionEnvironment
from firesteel.connectors.memory import TableSource
from firesteel.errors import UsageError
from firesteel.spark.driver.runtime import slots_per_machine
from firesteel.spark.session import sessions
from firesteel.spark.session.sessions import (
    _answers,
    _settings,
    check_session,
    create_session,
    is_local,
    own_interrupts,
)


def session(module="pyspark.sql.session", version="4.3.0", stopped=False, context=True, **conf):
    kind = type("SparkSession", (), {"__module__": module})
    made = kind()
    if context:
        jsc = MagicMock()
        jsc.sc().isStopped.return_value = stopped
        made.sparkContext = SimpleNamespace(version=version, _jsc=jsc, _conf=conf)
    return made


def test_a_classic_session_of_the_right_version_passes():
    check_session(session())
    check_session(session(version="4.3.1-SNAPSHOT"))
    check_session(session(version="3.5.0"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (session("pyspark.sql.connect.session", context=False), "Spark Connect"),
        (session(version="3.4.4"), r"runs Spark 3\.4\.4.*works with Spark 3\.5 to 4"),
        (session(version="5.0.0"), r"5\.0\.0"),
        (session(stopped=True), "has been stopped"),
        (session(**{"spark.speculation": "true"}), "spark.speculation=true"),
        ("local[2]", "not a str"),
    ],
)
def test_other_sessions_are_refused_with_a_sentence(given, words):
    with pytest.raises(UsageError, match=words):
        check_session(given)


def test_a_session_whose_context_is_gone_is_refused():
    given = session()
    given.sparkContext._jsc = None
    with pytest.raises(UsageError, match="has been stopped"):
        check_session(given)


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[*]", True),
        ("local[2,3]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://h:7077", False),
    ],
)
def test_local_masters(master, local):
    assert is_local(SimpleNamespace(master=master)) is local


def test_a_standalone_master_that_nobody_answers_at_is_told_before_spark_starts(monkeypatch):
    def start():
        raise AssertionError("Spark was started")

    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(sessions, "Start", start)
    with socket.socket() as bound:  # and nobody listens at it
        bound.bind(("127.0.0.1", 0))
        silent = f"127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(UsageError, match=f"did not start on 'spark://{silent}': no master answers there"):
            create_session(f"spark://{silent}")
        with socket.create_server(("127.0.0.1", 0)) as server:
            assert _answers(f"spark://{silent},127.0.0.1:{server.getsockname()[1]}"), "the second one stands by"
            with pytest.raises(AssertionError, match="was started"):
                create_session(f"spark://127.0.0.1:{server.getsockname()[1]}")
    for master in ("local[2]", "yarn", "spark://", "spark://host", "spark://host:99999"):
        assert _answers(master), "not ours to say"


def test_our_sessions_are_fair_quiet_and_use_unix_sockets(monkeypatch):
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    local = _settings("local[*]")
    assert local["spark.scheduler.mode"] == "FAIR"
    assert local["spark.python.unix.domain.socket.enabled"] == "true"
    assert local["spark.driver.bindAddress"] == "127.0.0.1"
    assert local["spark.python.daemon.module"] == "firesteel.task.executor.daemon"
    assert "log4j2" in local["spark.driver.defaultJavaOptions"]
    assert "spark.speculation" not in local
    cluster = _settings("spark://h:7077")
    assert "spark.python.daemon.module" not in cluster, "executors may not have Firesteel when their daemon starts"
    assert "spark.driver.bindAddress" not in cluster
    monkeypatch.setenv("PYSPARK_PYTHON", "/other/python")
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    theirs = _settings("local[*]")
    assert "spark.python.daemon.module" not in theirs
    assert "spark.driver.defaultJavaOptions" not in theirs
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert "spark.python.daemon.module" in _settings("local[*]")


def test_ctrl_c_is_a_plain_interrupt_while_we_wait_and_pysparks_again_after():
    cancelled = []

    def pysparks(_signal, _frame):
        cancelled.append(True)

    pysparks.__module__ = "pyspark.core.context"
    before = signal.signal(signal.SIGINT, pysparks)
    try:
        with pytest.raises(KeyboardInterrupt), own_interrupts():
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(600)
        assert signal.getsignal(signal.SIGINT) is pysparks
        assert not cancelled
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_users_own_handler_stays_in_place():
    def theirs(_signal, _frame):
        pass

    before = signal.signal(signal.SIGINT, theirs)
    try:
        with own_interrupts():
            assert signal.getsignal(signal.SIGINT) is theirs
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_leave_signals_alone():
    seen = []

    def body():
        with own_interrupts():
            seen.append(True)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [True]


class Interrupted(TableSource):
    """The user presses Ctrl-C while it lists its splits."""

    def list_splits(self, data_volume):
        signal.raise_signal(signal.SIGINT)
        return super().list_splits(data_volume)


@pytest.mark.parametrize("action", ["execute", "to_arrow"])
def test_ctrl_c_while_a_job_is_compiled_cancels_nobodys_jobs(tmp_path, action):
    cancelled = []

    def pysparks(_signal, _frame):
        cancelled.append("all")
        raise KeyboardInterrupt

    pysparks.__module__ = "pyspark.core.context"
    env = ExecutionEnvironment()
    stream = env.from_source(Interrupted(pa.table({"a": [1]})))
    before = signal.signal(signal.SIGINT, pysparks)
    try:
        with pytest.raises(KeyboardInterrupt, match="interrupted before it began"):
            if action == "execute":
                stream.write_parquet(tmp_path / "out")
                env.execute()
            else:
                stream.to_arrow()
        assert signal.getsignal(signal.SIGINT) is pysparks
    finally:
        signal.signal(signal.SIGINT, before)
    assert cancelled == []


def test_slots_of_a_machine():
    assert slots_per_machine(SimpleNamespace(master="local[3]")) == 3
    assert slots_per_machine(SimpleNamespace(master="local[*]")) == os.cpu_count()
    assert slots_per_machine(SimpleNamespace(master="local")) == 1
    assert slots_per_machine(SimpleNamespace(master="spark://h:1", _conf={"spark.executor.cores": "4"})) == 4
