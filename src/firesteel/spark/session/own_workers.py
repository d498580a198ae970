"""The Python workers of our own tasks: with all imported before they are forked, and with Unix sockets to them in a local session given to us.

Spark speaks TCP with its Python workers unless it was started otherwise, and then each task of a small job begins some 40 ms late: what Spark
writes in several pieces waits for an acknowledgement that the other side puts off. Sessions that we make use Unix sockets. In one that
was given, our tasks have workers of their own, told apart by an environment variable. Spark decides how it speaks with workers of an environment when it
starts their first one, so its option is on only while that happens, and is then what it was.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from firesteel.spark.session.preflight import runs_our_interpreter
from firesteel.spark.session.sessions import is_local, setting

UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
DIRECTORY = "spark.python.unix.domain.socket.dir"
DAEMON = "spark.python.daemon.module"
_FOLDER = Path(__file__).parents[2] / "task" / "executor" / "preload"
OWN_WORKERS = {"FIRESTEEL_WORKERS": "1"}
LONGEST_DIRECTORY = 60
"""Characters. A socket's path has at most some 100 of them, of which its name takes 42."""


class AsTheyAre:
    """As the session says. ``own``: variables of all our workers."""

    def __init__(self, own: Mapping[str, str]) -> None:
        self._own = own

    def workers(self, variables: Mapping[str, str]) -> AbstractContextManager[Mapping[str, str]]:
        """The environment variables that the batch's workers get beside ``variables``, while it runs."""
        return nullcontext({**variables, **self._own})


AS_THEY_ARE = AsTheyAre({})


class UnixSockets:
    """Over Unix sockets. ``conf``: the session's own SparkConf in the JVM, which its executor reads; ``own``: variables of all our workers."""

    def __init__(self, conf: Any, own: Mapping[str, str]) -> None:
        self._conf = conf
        self._own = {**own, **OWN_WORKERS}
        self._lock = threading.Lock()
        self._started: set[frozenset[tuple[str, str]]] = set()
        """Environments whose workers have been started."""
        self._holders = 0

    @contextmanager
    def workers(self, variables: Mapping[str, str]) -> Generator[Mapping[str, str]]:
        own = {**variables, **self._own}
        key = frozenset(own.items())
        if key in self._started:
            yield own
            return
        self._hold()
        try:
            yield own
            self._started.add(key)
        finally:
            self._let_go()

    def _hold(self) -> None:
        with self._lock:
            self._holders += 1
            self._conf.set(UNIX_SOCKETS, "true")

    def _let_go(self) -> None:
        with self._lock:
            self._holders -= 1
            if not self._holders:
                self._conf.remove(UNIX_SOCKETS)


OwnWorkers = AsTheyAre | UnixSockets
"""The variables that the Python workers of our batches get, and the way Spark speaks with them."""

_known: dict[str, OwnWorkers] = {}
_knowing = threading.Lock()


def own_workers(context: Any) -> OwnWorkers:
    """For the batches of a Spark application: the same for all of its jobs."""
    with _knowing:
        application: str = context.applicationId
        if application not in _known:
            _known[application] = _workers_of(context)
        return _known[application]


def _workers_of(context: Any) -> OwnWorkers:
    """Unix sockets if the user has not said otherwise, and executor and driver are one process, whose settings we can reach."""
    if not is_local(context):
        return AS_THEY_ARE
    own = preloading(context)
    if setting(context, UNIX_SOCKETS) is not None:
        return AsTheyAre(own)
    directory = setting(context, DIRECTORY) or context._jvm.System.getProperty("java.io.tmpdir")
    return AsTheyAre(own) if len(directory) > LONGEST_DIRECTORY else UnixSockets(context._jsc.sc().conf(), own)


def preloading(context: Any) -> Mapping[str, str]:
    """Environment variables of workers whose daemon imports what tasks need; none where it does already, or runs another Python.

    Spark lets idle Python workers go after a minute, and forks new ones from its daemon, which has nothing of ours imported: so the first step
    after each pause in a notebook began a second late. Sessions that we make have a daemon of ours. In one that was given, the environment of our
    workers leads their daemon to a ``sitecustomize`` that imports the same.
    """
    if setting(context, DAEMON) is not None or not runs_our_interpreter(context):
        return {}
    if not _FOLDER.is_dir():  # in a zip
        return {}
    given = context.environment.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(_FOLDER), given] if given else [str(_FOLDER)])}
