"""The walls of the house: which room (a folder or module of ``src/firesteel``) may import which. Tests keep them, docs show them."""

from __future__ import annotations

COMMON = {"errors", "extras", "humanize", "masking", "package_files", "option_functions", "users_line"}
"""Standard library only. Every room may import them."""

ALLOWED = {
    "options": {"options"},
    "model": {"model", "options"},
    "results": {"results", "model"},
    "engine": {"engine", "results"},
    "task": {"task", "engine", "results", "model"},
    "connectors": {"connectors", "task", "engine", "results"},
    "compile": {"compile", "render", "plan", "engine", "model", "task", "connectors", "options", "results"},
    "local": {"local", "compile", "model", "task", "connectors", "options", "results"},
    "scheduler": {"scheduler", "model", "options"},
    "journal": {"journal", "scheduler", "model", "options"},
    "recovery": {"recovery", "results", "scheduler"},
    "report": {"report", "journal", "scheduler", "model", "options"},
    "monitoring": {"monitoring", "journal", "scheduler", "options"},
    "view": {"view", "report", "journal", "scheduler", "compile"},
    "simulation": {"simulation", "report", "scheduler", "model", "options", "journal"},
    "control": {"control", "scheduler"},
    "streaming": {"api", "scheduler"},
    "functions": {"api", "plan"},
    "arrow": set(),
    "api": {
        "api", "view", "report", "journal", "compile", "model", "task", "connectors", "options", "scheduler",
        "spark", "results", "control", "sql", "render", "plan", "local", "monitoring", "ui", "engine", "run",
    },
    "plan": {"plan"},
    "render": {"render", "plan", "engine"},
    "run": {
        "run", "render", "plan", "engine", "task", "connectors", "options", "journal", "monitoring", "scheduler", "ui", "model", "view",
    },
    "sql": {"sql", "plan", "render", "compile", "connectors", "engine", "model", "task", "spark"},
    "ui": {"ui", "simulation", "view", "report", "journal", "control", "scheduler", "options"},
    "cli": {"cli", "view", "report", "journal", "options", "api", "simulation", "control", "streaming", "local", "ui"},
}  # fmt: skip
"""The façade ``__init__`` imports by name, when it is used."""

NOT_FOR_SPARK = {"api", "cli", "simulation"}
"""``spark``, the data plane, may import every other room."""


def in_words(room: str) -> str:
    """The rooms that a room may import, for a page."""
    if room == "spark":
        return "all but " + ", ".join(f"`{other}`" for other in sorted(NOT_FOR_SPARK))
    return ", ".join(f"`{other}`" for other in sorted(ALLOWED[room] - {room}))
