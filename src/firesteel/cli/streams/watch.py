"""``firesteel stream status --watch``: a table that is redrawn on a terminal, a line per change in a pipe."""

from __future__ import annotations

import time

from msgspec.structs import replace

from firesteel.cli.shared import as_json_text, ended, is_terminal, show
from firesteel.control.client import StreamClient, StreamGone
from firesteel.control.messages import StreamStatus
from firesteel.view.stream_view import OVER, status_line, status_table


def watch(client: StreamClient, interval: float, as_json: bool) -> None:
    """Until the stream ends, or the reader goes away."""
    if as_json or not is_terminal():
        _watch_lines(client, interval, as_json)
    else:
        _watch_table(client, interval)


def _watch_lines(client: StreamClient, interval: float, as_json: bool) -> None:
    said = None
    while True:
        status = _status(client)
        if status is None:
            if not as_json:
                show(ended(client.entry))
            return
        text = as_json_text(status) if as_json else f"{status.name}: {status_line(status)}"
        if (news := _news(status)) != said and not show(text):
            return
        said = news
        if status.state == OVER:
            return
        time.sleep(interval)


def _news(status: StreamStatus) -> StreamStatus:
    """The parts of the status whose change prints another line: not the time that is left to wait."""
    waits = status.waits and replace(status.waits, seconds=None)
    return replace(status, waits_for="", waits=waits)


def _watch_table(client: StreamClient, interval: float) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with Live(console=console, auto_refresh=False) as live:
        status = _status(client)
        while status is not None:
            live.update(status_table(status, console.width), refresh=True)
            if status.state == OVER:
                return
            time.sleep(interval)
            status = _status(client)
    show(ended(client.entry))


def _status(client: StreamClient) -> StreamStatus | None:
    try:
        return client.status()
    except StreamGone:
        return None
