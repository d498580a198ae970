"""Starting Spark's JVM: what is left of a start that fails or is interrupted, and what is said of it. No Spark starts here."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import SimpleNamespace

import pytest

from firesteel.spark.session import gateway
from firesteel.spark.session.gateway import Start

LIVES = "import sys, time; print('started', flush=True); time.sleep(600)"
DIES = "import sys; sys.stderr.write('WARNING: Using incubator modules: x\\nError: Could not create the VM\\nmore\\n'); sys.exit(1)"


def launcher(monkeypatch, code, launched):
    """PySpark's launch_gateway, with another program for the JVM; it waits for the process to end."""
    from pyspark import java_gateway

    def launch_gateway(_conf, popen_kwargs):
        process = java_gateway.Popen([sys.executable, "-c", code], **popen_kwargs)
        launched.set()
        process.wait()
        raise RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited")

    monkeypatch.setattr(java_gateway, "launch_gateway", launch_gateway)
    return java_gateway.Popen


def test_ctrl_c_while_the_jvm_starts_ends_it(monkeypatch):
    from pyspark import java_gateway

    launched = threading.Event()
    popen = launcher(monkeypatch, LIVES, launched)
    start, context = Start(), SimpleNamespace(_gateway=None)

    def press():
        launched.wait(600)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=press, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            start.run(lambda: start.launch(context, None))
    finally:
        signal.signal(signal.SIGINT, before)
    assert start.process is not None
    assert start.process.wait(600) == -signal.SIGKILL
    assert java_gateway.Popen is popen
    start.forget(context)
    assert context._gateway is None


def test_after_giving_up_no_jvm_is_started(monkeypatch):
    launcher(monkeypatch, LIVES, threading.Event())
    start = Start()
    start.kill()
    with pytest.raises(InterruptedError):
        start.run(lambda: start.launch(SimpleNamespace(_gateway=None), None))
    assert start.process is None


def test_a_jvm_that_does_not_start_is_quoted(monkeypatch, capfd):
    launcher(monkeypatch, DIES, threading.Event())
    start = Start()
    with pytest.raises(RuntimeError, match="GATEWAY_EXITED"):
        start.run(lambda: start.launch(SimpleNamespace(_gateway=None), None))
    assert start.jvm_words() == "Error: Could not create the VM"
    assert capfd.readouterr().err == ""


def test_a_gateway_that_is_there_already_is_left_alone():
    start = Start()
    start.run(lambda: start.launch(SimpleNamespace(_gateway=object()), None))
    start.kill()
    assert start.jvm_words() is None


def test_a_java_home_that_points_nowhere_gives_way_to_the_java_on_the_path(tmp_path, monkeypatch):
    home = tmp_path / "good"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\n")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text('JAVA_VERSION="21.0.1"\n')
    monkeypatch.setenv("PATH", str(home / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert gateway.find_java_home() is None
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    assert gateway.find_java_home() == str(home)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(gateway, "_wheel_home", lambda: None)
    with pytest.raises(Exception, match="JAVA_HOME is /nonexistent, which holds no bin/java"):
        gateway.find_java_home()
