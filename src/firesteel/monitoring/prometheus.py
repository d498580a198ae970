"""Metrics for Prometheus (the extra ``prometheus``): as a page to serve, and a small server of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Any

from firesteel.extras import load
from firesteel.monitoring.numbers import COUNTER, FAMILIES, Board, Family, NumbersExporter, samples
from firesteel.options import PROMETHEUS_HOST, PROMETHEUS_PORT, Options

PREFIX = "firesteel_"
BOARD = Board()
"""The jobs and streams of this process whose options ask for metrics."""

_servers: dict[tuple[str, int], Any] = {}
_serving = threading.Lock()
_log = logging.getLogger("firesteel.monitoring")


def exporter(options: Options) -> NumbersExporter:
    """Of one job or stream; with a port in the options, they are served from now on. Raises UsageError without the library."""
    _library()
    port = options[PROMETHEUS_PORT]
    if port is not None:
        serve(options[PROMETHEUS_HOST], port)
    return NumbersExporter(BOARD)


def registry(board: Board) -> Any:
    """A ``prometheus_client`` registry of the board's metrics and no others."""
    made = _library().CollectorRegistry()
    made.register(Collector(board))
    return made


class Collector:
    """A collector for ``prometheus_client``. To show the metrics beside those of your own program, register one with its registry."""

    def __init__(self, board: Board = BOARD) -> None:
        self._board = board
        self._core = load("prometheus_client.core", "prometheus", f"'{PROMETHEUS_PORT.key}'")

    def describe(self) -> Iterable[Any]:
        return [self._empty(family) for family in FAMILIES]

    def collect(self) -> Iterable[Any]:
        found: dict[str, Any] = {}
        for family, labels, value in samples(self._board):
            if family.name not in found:
                found[family.name] = self._empty(family)
            found[family.name].add_metric(labels, value)
        return found.values()

    def _empty(self, family: Family) -> Any:
        kind = self._core.CounterMetricFamily if family.kind == COUNTER else self._core.GaugeMetricFamily
        return kind(PREFIX + family.name, family.help, labels=family.labels)


def serve(host: str, port: int) -> int | None:
    """Serves the page from threads of its own, once in a process. Returns the port (one that is free, for 0); None: it cannot, which is logged once."""
    with _serving:
        if (host, port) not in _servers:
            _servers[host, port] = _started(host, port)
        server = _servers[host, port]
        return None if server is None else int(server.server_port)


def _started(host: str, port: int) -> Any:
    try:
        server, _thread = _library().start_http_server(port, host, registry(BOARD))
    except OSError as error:
        _log.warning("Metrics cannot be served at %s port %d: %s. The jobs go on without.", host, port, error.strerror)
        return None
    _log.info("Metrics are served at http://%s:%d/metrics", host, server.server_port)
    return server


def _library() -> Any:
    return load("prometheus_client", "prometheus", f"'{PROMETHEUS_PORT.key}'")
