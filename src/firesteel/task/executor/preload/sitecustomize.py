"""Module that Python runs as it starts, where this folder is on the path: imports what tasks import into PySpark's worker daemon.

For the workers of ours in sessions whose daemon is Spark's own (``firesteel.spark.session.own_workers``). Another ``sitecustomize``, which
this one hides, runs as it would have.
"""

import os
import sys
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

_HERE = __file__.rpartition(os.sep)[0]


def _run_hidden() -> None:
    spec = PathFinder.find_spec("sitecustomize", [path for path in sys.path if path != _HERE])
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = hidden = module_from_spec(spec)
        spec.loader.exec_module(hidden)


def _leave_path() -> None:
    """Processes that tasks start are none of ours."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path != _HERE)
    sys.path[:] = [path for path in sys.path if path != _HERE]


_leave_path()
try:
    _run_hidden()
finally:
    if "pyspark.daemon" in sys.orig_argv:
        with suppress(Exception):  # tasks import it themselves, and say what is missing
            from firesteel.task.executor.daemon import preload

            preload()
