"""Which demos there are. Each runs on real input and ends with what was decided and why."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from firesteel.errors import UsageError

DEMOS = {
    "word-count": "Count the identifiers of all Python sources of this machine, and where each is used most.",
    "stream": "Payments that flow in, with state per customer: a stream that is rescaled twice while it runs.",
}
DEFAULT = "word-count"


def list_text() -> str:
    width = max(map(len, DEMOS))
    return "\n".join(f"{name:<{width}}  {told}" for name, told in DEMOS.items())


def run_named(name: str, out: Path | None, master: str | None, options: Mapping[str, Any]) -> None:
    """Raises UsageError for a demo that there is not."""
    import difflib

    if name not in DEMOS:
        close = difflib.get_close_matches(name, DEMOS, n=1)
        hint = f"Did you mean '{close[0]}'?" if close else f"There are: {', '.join(DEMOS)}."
        raise UsageError(f"There is no demo '{name}'.", hint=hint)
    if name == "stream":
        from firesteel.cli.demo_stream import run_stream_demo

        run_stream_demo(out or Path("out/demo-stream"), master, options)
        return
    from firesteel.cli.demo import run_demo

    run_demo(out or Path("out/demo"), master, options)
