"""Imports of tasks made once, before Python workers are forked, in a local session that was given to us.

Spark lets idle Python workers go after a minute, and forks new ones from its daemon, which has nothing of ours imported: so the first step
after each pause in a notebook began a second late. Sessions that we make have a daemon of ours. In one that was given, the environment of our workers
leads their daemon to a ``sitecustomize`` that imports the same.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from firesteel.spark.session.preflight import runs_our_interpreter
from firesteel.spark.session.sessions import setting

DAEMON = "spark.python.daemon.module"
_FOLDER = Path(__file__).parents[2] / "task" / "executor" / "preload"


def preloading(context: Any) -> Mapping[str, str]:
    """Environment variables of workers whose daemon imports what tasks need; none where it does already, or runs another Python."""
    if setting(context, DAEMON) is not None or not runs_our_interpreter(context):
        return {}
    if not _FOLDER.is_dir():  # in a zip
        return {}
    given = context.environment.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(_FOLDER), given] if given else [str(_FOLDER)])}
