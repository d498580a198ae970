"""``firesteel stream run``: the stream of a script that defines ``build(spark)``.

The script is loaded under another name than ``__main__``: one that starts its stream itself, under ``if __name__ ==
"__main__"``, can be run in both ways. One that only does that is for ``firesteel run``.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firesteel.cli.script import run_script
from firesteel.errors import UsageError
from firesteel.options import PROGRESS, Options
from firesteel.view.screen import is_live
from firesteel.view.stream_progress import LiveStreamProgress

MODULE = "__stream__"
"""The value of ``__name__`` in the script."""


@dataclass(frozen=True, slots=True)
class StreamJob:
    """The stream's settings from the command line."""

    checkpoint: str | None
    name: str | None
    lower: int | None
    upper: int | None
    master: str | None
    options: Mapping[str, Any]


def run_stream(script: Path, arguments: list[str], job: StreamJob) -> int:
    """Until the stream ends. The exit code: 0, 1 if it failed, 130 after Ctrl-C, 143 after SIGTERM."""
    from firesteel.api.environment import set_defaults

    set_defaults(master=job.master, options=job.options)
    return run_script(script, arguments, name=MODULE, then=lambda names: _run(script, names, job))


def _run(script: Path, names: Mapping[str, Any], job: StreamJob) -> int:
    from firesteel.streaming import AdaptiveStream, ResourceRequirements

    build = names.get("build")
    if not callable(build):
        raise UsageError(
            f"{script} defines no function build(spark).",
            hint="It must return a DataStreamWriter that is not started. A script that calls AdaptiveStream.start itself is "
            f"run by: firesteel run {shlex.quote(str(script))}",
        )
    checkpoint = job.checkpoint or names.get("checkpoint")
    if not checkpoint:
        raise UsageError(
            "The stream's checkpoint is not given.",
            hint=f"Give --checkpoint DIR, or set checkpoint = 'DIR' in {script}.",
        )
    common = ResourceRequirements()
    lower = common.lower if job.lower is None else job.lower
    upper = max(lower, common.upper) if job.upper is None else job.upper
    live = _live(job)
    stream = AdaptiveStream.start(
        build,
        checkpoint,
        ResourceRequirements(lower, upper),
        options={} if live is None else {PROGRESS.key: False},  # this one stands for it
        name=job.name,
        slot_sharing_group=names.get("slot_sharing_group"),
        instruments=[] if live is None else [live],
    )
    if live is not None:
        live.show(stream.status)
    stream.await_termination()
    return 0


def _live(job: StreamJob) -> LiveStreamProgress | None:
    """The live view, on a terminal; None: nobody would see it, or wants to."""
    if not Options(job.options)[PROGRESS] or sys.stderr is None or not is_live(sys.stderr):
        return None
    return LiveStreamProgress(sys.stderr)
