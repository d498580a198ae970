"""What a user's function opens while it runs is seen; what Python, Firesteel and a user's source open is not."""

from __future__ import annotations

import configparser
import linecache
import os
import socket
import subprocess
import sys
import warnings
from itertools import count
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.task.executor import openings
from firesteel.task.executor.information import VertexInformation
from firesteel.task.executor.openings import Watch, watched

_programs = count()


def seen(function, pure=(), program=None):
    program = str(next(_programs)).encode() if program is None else program
    with watched(Watch(pure, frozenset([3])), [VertexInformation(3, "step", 1, {}, program)]) as found:
        function()
    return found


def module(name, text):
    names = {"__name__": name}
    exec(text, names)
    return names["run"]


def opens():
    Path(__file__).open("rb").close()


def pure():
    sys.modules.pop("colorsys", None)
    import colorsys

    assert colorsys.rgb_to_hsv(0, 0, 0)
    print(pc.sum(pa.table({"v": [1, 2]})["v"]), flush=True)
    ZoneInfo.no_cache("Europe/Berlin")
    linecache.clearcache()
    assert "pure" in warnings.formatwarning("shows its line", UserWarning, __file__, pure.__code__.co_firstlineno)
    os.fdopen(os.dup(1), "w").close()
    Path(os.devnull).open("rb").close()


READS = "def run(then=None):\n    open('/dev/zero').close() if then is None else then()\n"


def test_what_is_seen():
    (opening,) = seen(opens)
    assert opening == (f"opened {__file__!r}", "opens")
    assert str(opening) == f"opened {__file__!r} in opens while it ran"
    for function, what in [
        (lambda: configparser.ConfigParser().read("/no/where"), "opened '/no/where'"),
        (lambda: subprocess.run([sys.executable, "-V"], check=True, capture_output=True), "called subprocess.Popen"),
        (lambda: [socket.gethostname()], "called socket.gethostname"),
        (lambda: list(os.scandir("/")), "called os.scandir"),
        (lambda: module("firesteel.task.functions.any", READS)(opens), f"opened {__file__!r}"),
    ]:
        assert [one.what for one in seen(function)] == [what]


def test_what_is_not_seen():
    assert seen(pure) == []
    assert seen(module("firesteel.results.reader", READS)) == []  # which a function has called
    assert seen(lambda: module("firesteel.task.runner", READS)(opens)) == []  # of a user's source
    reads = lambda: configparser.ConfigParser().read("/no/where")  # noqa: E731
    assert seen(reads, pure=("configparser",)) == seen(reads, pure=("configparser.ConfigParser",)) == []
    assert seen(reads, pure=("config", "configparser.ConfigParser.write")) != []
    with watched(None, []) as found:
        opens()
    assert found == [] and openings._now is None


def test_a_step_may_have_kept_what_it_read():
    first = seen(opens, program=b"one")
    assert seen(lambda: None, program=b"one") == first and seen(lambda: None, program=b"another") == []
