"""The output of ``firesteel stream list``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from firesteel.cli.shared import table
from firesteel.control.client import StreamClient
from firesteel.control.messages import Call, Request, StreamStatus
from firesteel.control.names import Known
from firesteel.errors import FiresteelError

_SECONDS = 2.0
"""A stream that hangs must not keep the others from being listed."""


def streams_text(known: Sequence[Known]) -> str:
    if not known:
        return "No stream of yours runs on this machine."
    return "\n".join(table(("name", "state", "partitions", "process", "checkpoint"), [*map(_row, known)]))


def streams_json(known: Sequence[Known]) -> str:
    return json.dumps([_plain(each) for each in known])


def _row(each: Known) -> tuple[str, ...]:
    status = _status(each)
    entry = each.entry
    if status is None:
        state = "does not answer" if each.live else "over" if entry.ended else "process is gone"
        return (entry.name, state, "", str(entry.pid), entry.checkpoint)
    state = f"{status.state}, {status.phase}" if status.phase else status.state
    wanted = f" (wants {status.wanted})" if status.wanted != status.parallelism else ""
    return (entry.name, state, f"{status.parallelism}{wanted}", str(entry.pid), entry.checkpoint)


def _plain(each: Known) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(each.entry)
    return {**plain, "live": each.live, "status": msgspec.to_builtins(_status(each))}


def _status(each: Known) -> StreamStatus | None:
    if not each.live:
        return None
    try:
        with StreamClient(each.entry) as client:
            return client.call(Request(call=Call.STATUS), _SECONDS)
    except FiresteelError:
        return None
