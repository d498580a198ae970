"""The command group: what typer does, quicker while a shell waits for completions."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

_FIRST = ("run", "explain", "history", "options", "decide", "clean", "demo")
"""The commands of every day; the others follow."""


class Group(TyperGroup):
    """Newer typers load pydantic to read the values of parameters, which takes longer than all else; completion needs none
    of these values."""

    def list_commands(self, ctx: Any) -> list[str]:
        there = super().list_commands(ctx)
        return sorted(
            there, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), there.index(name))
        )

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:
            _leave_values(self, ctx)
        return super().parse_args(ctx, args)


def _leave_values(command: Any, ctx: Any) -> None:
    for param in command.get_params(ctx):
        if hasattr(param, "_runtime_param"):
            param._runtime_param = _AsItIs()
    for nested in getattr(command, "commands", {}).values():
        _leave_values(nested, ctx)


class _AsItIs:
    """Stands for typer's reader of a value."""

    def coerce(self, value: Any, **_: Any) -> Any:
        return value
