"""Receivers on loopback: of OTLP over HTTP (protobuf), and of OpenLineage (JSON)."""

from __future__ import annotations

import gzip
import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Received:
    """All that was sent to ``url``."""

    url: str = ""
    bodies: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    """By path."""

    def spans(self) -> list[Any]:
        requests = map(ExportTraceServiceRequest.FromString, self.bodies["/v1/traces"])
        return [s for r in requests for one in r.resource_spans for scope in one.scope_spans for s in scope.spans]

    def metrics(self) -> dict[str, Any]:
        """The last word on each, by name."""
        requests = map(ExportMetricsServiceRequest.FromString, self.bodies["/v1/metrics"])
        found = [
            m for r in requests for one in r.resource_metrics for scope in one.scope_metrics for m in scope.metrics
        ]
        return {metric.name: metric for metric in found}

    def events(self) -> list[dict[str, Any]]:
        return list(map(json.loads, self.bodies["/api/v1/lineage"]))


@contextmanager
def receiver(status: int = 200) -> Iterator[Received]:
    """One that answers so."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            packed = self.headers.get("Content-Encoding") == "gzip"
            received.bodies[self.path].append(gzip.decompress(body) if packed else body)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
