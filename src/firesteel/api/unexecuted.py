"""Sinks that were made and never executed: a sentence at the end of the script, which else would end as if it had written them."""

from __future__ import annotations

import atexit
import os
import sys

from firesteel.compile.stream_graph import StreamNode

_waiting: dict[object, list[str]] = {}
"""By environment, in words: nodes may hold many rows."""
_pid = os.getpid()


def sink_made(owner: object, sink: StreamNode) -> None:
    """``owner``: stands for the environment, which may be gone at the end of the script."""
    _waiting.setdefault(owner, []).append(str(sink))


def sinks_used(owner: object) -> None:
    """The sinks were executed, looked at, or given up on purpose."""
    _waiting.pop(owner, None)


def _is_script() -> bool:
    """False in a notebook, at a prompt, and in tests, which make sinks only to look at them."""
    return not ({"IPython", "pytest", "unittest"} & set(sys.modules) or hasattr(sys, "ps1") or sys.flags.interactive)


def script_failed() -> None:
    """``firesteel run`` has told what ended the script."""
    _waiting.clear()


def _ended_well() -> bool:
    """False if an exception ended the script. The code of ``sys.exit`` is not known here."""
    return getattr(sys, "last_exc", None) is None and getattr(sys, "last_value", None) is None


@atexit.register
def _at_exit() -> None:
    sinks = [sink for some in _waiting.values() for sink in some]
    if not sinks or os.getpid() != _pid or not _is_script() or not _ended_well():
        return
    more = f" and {len(sinks) - 1} more" if len(sinks) > 1 else ""
    were = "were" if more else "was"
    sys.stderr.write(
        f"firesteel: warning: {sinks[0]}{more} {were} never executed, so nothing was written. Call execute() after the last sink.\n"
    )
