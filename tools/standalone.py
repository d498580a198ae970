"""A real Spark cluster on this machine, and the means to hurt it: for tests, benchmarks and the soak.

A master and some workers on loopback addresses of their own, each a node with one slot. ``slow`` and ``freeze`` stop and
continue a node's executor and all that it has started (stopping the JVM alone would leave its Python workers running);
``kill_executor`` and ``kill_worker`` kill. Every process of the cluster carries a mark in its environment; whoever carries
it is killed at the end, also when the process that made the cluster was killed itself: a guard waits for that.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

HOSTS = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
MARK = "FIRESTEEL_STANDALONE_CLUSTER"
START_SECONDS = 600.0
FOLLOW_SECONDS = 0.25
"""How often a node that is held down is looked at for processes it has started."""
_LOG4J = """\
rootLogger.level=info
rootLogger.appenderRef.e.ref=e
appender.e.type=Console
appender.e.name=e
appender.e.target=SYSTEM_ERR
appender.e.layout.type=PatternLayout
appender.e.layout.pattern=%m%n
"""


@dataclass(frozen=True)
class Size:
    """What a worker offers. ``resources``: addresses by name, which its discovery scripts print."""

    cores: int = 1
    memory: str = "1g"
    resources: Mapping[str, Sequence[str]] = field(default_factory=dict)


class StandaloneCluster:
    """A context manager; ``url`` is the master's. Workers start on ``hosts``, each with ``cores`` slots and ``memory``, or as
    large as ``sizes`` says of it.

    ``folder``: for logs and the executors' directories; one is made if None. Raises RuntimeError when a part does not start.
    """

    def __init__(
        self,
        folder: Path | None = None,
        hosts: Sequence[str] = HOSTS,
        *,
        cores: int = 1,
        memory: str = "1g",
        sizes: Mapping[str, Size] | None = None,
    ) -> None:
        self._made = tempfile.mkdtemp(prefix="firesteel-cluster-") if folder is None else None
        self.folder = Path(folder or self._made or ".")
        self.hosts = tuple(hosts)
        self.url = ""
        self.mark = uuid.uuid4().hex
        self.sizes = {host: (sizes or {}).get(host) or Size(cores, memory) for host in self.hosts}
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._starts = 0
        self._held: dict[str, Held] = {}
        self._guard: subprocess.Popen[bytes] | None = None

    # --- its life --------------------------------------------------------------------------------------------

    def __enter__(self) -> StandaloneCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when all workers are registered."""
        atexit.register(self.stop)
        self._guard = subprocess.Popen(
            [sys.executable, __file__, self.mark, *([self._made] if self._made else [])],
            stdin=subprocess.PIPE,
            start_new_session=True,
            cwd="/",
        )
        port = _free_port()
        self.url = f"spark://127.0.0.1:{port}"
        ports = ("--port", str(port), "--webui-port", "0")
        self._master, log = self._daemon("master", "127.0.0.1", "master.Master", *ports)
        _await_line(log, "New state: ALIVE", self._master)
        self.start_workers()

    def stop(self) -> None:
        """Ends all of it, whatever state it is in. May be called again."""
        atexit.unregister(self.stop)
        for held in list(self._held.values()):
            held.end()
        _kill(marked(self.mark))
        for process in (self._master, *self._workers.values()):
            if process is not None:
                process.wait()
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            self._guard.wait()
        if self._made:
            shutil.rmtree(self._made, ignore_errors=True)

    def environment(self) -> dict[str, str]:
        """This process's variables and the mark: for drivers that must not outlive the cluster."""
        return {**os.environ, MARK: self.mark}

    # --- hurting it ------------------------------------------------------------------------------------------

    def slow(self, host: str, share: float = 0.1, period: float = 0.1) -> Held:
        """The node's executor and its Python processes run only ``share`` of the time, in pieces of ``share * period`` s.

        From now on until the returned object's ``end``, or the end of its ``with`` block. Pure waiting is not slowed: a
        single ``time.sleep(1)`` ends on time, a thousand of 1 ms take nearly ten times as long.
        """
        return self._hold(host, share, period)

    def freeze(self, host: str) -> Held:
        """The node's executor and its Python processes stand still until the returned object's ``end``."""
        return self._hold(host, 0.0, FOLLOW_SECONDS)

    def kill_executor(self, host: str) -> None:
        """SIGKILL for the executor on this host and its Python workers. The worker lives on and starts another.

        Raises RuntimeError when there is no executor.
        """
        victims = self.processes(host)
        if not victims:
            raise RuntimeError(f"there is no executor on {host}")
        _kill(victims)

    def kill_worker(self, host: str) -> None:
        """SIGKILL for the worker and its executor: the node is gone until ``start_workers``."""
        daemon = self._workers[host]
        victims = self.processes(host)
        daemon.kill()
        _kill(victims)
        daemon.wait()

    def start_workers(self, *hosts: str) -> None:
        """Starts those of these hosts, or of all, that do not run, and returns when they are registered."""
        ended = [host for host in hosts or self.hosts if not self._runs(host)]
        logs = {host: self._start_worker(host) for host in ended}
        for host, log in logs.items():
            _await_line(log, "Successfully registered with master", self._workers[host])

    def processes(self, host: str) -> list[psutil.Process]:
        """The executor on this host and whatever it has started; none while there is no application."""
        try:
            found = psutil.Process(self._workers[host].pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return [process for process in found if _lives(process)]

    # -----------------------------------------------------------------------------------------------------------

    def _hold(self, host: str, share: float, period: float) -> Held:
        if host in self._held:
            raise ValueError(f"{host} is held already")
        held = self._held[host] = Held(self, host, share, period)
        held.start()
        return held

    def _release(self, host: str) -> None:
        self._held.pop(host, None)

    def _runs(self, host: str) -> bool:
        return host in self._workers and self._workers[host].poll() is None

    def _start_worker(self, host: str) -> Path:
        size = self.sizes[host]
        numbers = ("--cores", str(size.cores), "--memory", size.memory, "--webui-port", "0")
        offers = ("--properties-file", str(self._offers(host, size))) if size.resources else ()
        directory = ("--work-dir", str(self.folder / host), self.url)
        self._workers[host], log = self._daemon(host, host, "worker.Worker", *numbers, *offers, *directory)
        return log

    def _offers(self, host: str, size: Size) -> Path:
        """The worker's settings, which name a discovery script for each external resource."""
        lines: list[str] = []
        for name, addresses in size.resources.items():
            script = self.folder / f"{host}-{name}.sh"
            script.write_text(f"#!/bin/sh\necho '{json.dumps({'name': name, 'addresses': list(addresses)})}'\n")
            script.chmod(0o755)
            key = f"spark.worker.resource.{name}"
            lines += [f"{key}.amount {len(addresses)}", f"{key}.discoveryScript {script}"]
        settings = self.folder / f"{host}.conf"
        settings.write_text("\n".join(lines))
        return settings

    def _daemon(self, name: str, host: str, main: str, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
        import pyspark
        from tools.spark_archive import options  # the daemons only talk: let them start quickly and take few cores

        home = Path(pyspark.__file__).parent
        log4j = self.folder / "log4j2.properties"
        log4j.write_text(_LOG4J)
        inherited = {k: v for k, v in self.environment().items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        env = inherited | {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"-Dlog4j2.configurationFile={log4j.as_uri()} {options()}",
        }
        self._starts += 1
        log = self.folder / f"{name}-{self._starts}.log"
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}", "--host", host, *arguments]
        with log.open("w") as out:
            return subprocess.Popen(command, stdout=out, stderr=out, env=env, cwd=self.folder), log


class Held:
    """A node that is held down, until ``end``. Also a context manager. A thread follows what the node starts anew."""

    def __init__(self, cluster: StandaloneCluster, host: str, share: float, period: float) -> None:
        self._cluster = cluster
        self._host = host
        self._share = share
        self._period = period
        self._over = threading.Event()
        self._known: list[psutil.Process] = []
        self._thread = threading.Thread(target=self._run, name=f"hold-{host}", daemon=True)

    def start(self) -> None:
        """Returns when all that runs now is stopped for the first time."""
        self._stop_all()
        self._thread.start()

    def end(self) -> None:
        """Everything runs again. May be called again."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        for process in {*self._known, *self._cluster.processes(self._host)}:
            _signal(process, signal.SIGCONT)
        self._cluster._release(self._host)

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _run(self) -> None:
        rest = self._period * (1.0 - self._share)
        looked = time.monotonic()
        while not self._over.wait(rest):
            began = time.monotonic()
            if self._share:
                for process in self._known:
                    _signal(process, signal.SIGCONT)
                self._over.wait(self._period * self._share)
                for process in self._known:
                    _signal(process, signal.SIGSTOP)
            now = time.monotonic()
            if self._share:  # what ran too long on a busy machine rests longer
                rest = (now - began) * (1.0 - self._share) / self._share
            if now - looked >= FOLLOW_SECONDS:
                self._stop_all()
                looked = time.monotonic()
                rest = max(0.0, rest - (looked - now))

    def _stop_all(self) -> None:
        """Stops what the node consists of now; parents first, and again until nothing is new."""
        while True:
            found = self._cluster.processes(self._host)
            new = set(found).difference(self._known)
            for process in found:
                _signal(process, signal.SIGSTOP)
            # orphans of a dead executor stay known: they must be continued to end
            self._known = [p for p in {*self._known, *found} if p.is_running()]
            if not new:
                return


def marked(mark: str) -> list[psutil.Process]:
    """All processes of the cluster with this mark, orphans too."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark:
                found.append(process)
    return found


def _kill(processes: Iterable[psutil.Process]) -> None:
    victims = list(processes)
    for process in victims:
        _signal(process, signal.SIGKILL)
    psutil.wait_procs(victims, timeout=10)


def _lives(process: psutil.Process) -> bool:
    """False for one that has ended and whose parent has not noticed yet."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        process.send_signal(number)


def _await_line(log: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_SECONDS
    while not re.search(text, log.read_text()):
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"{log.name} never said '{text}': {log.read_text()[-2000:]}")
        time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _stand_guard(mark: str, *folders: str) -> None:
    """Waits until who made the cluster has ended it, or is gone; then kills what is left and removes the folders."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.buffer.read()
    while left := marked(mark):
        _kill(left)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _stand_guard(*sys.argv[1:])
