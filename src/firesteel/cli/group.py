"""The command group: what typer does, quicker while a shell waits for completions; and a command with an option whose value may be left out."""

from __future__ import annotations

import difflib
from typing import Any

from typer.core import TyperCommand, TyperGroup

_FIRST = ("run", "explain", "history", "options", "decide", "results", "clean", "recover", "demo")
"""The commands of every day; the others follow."""
_LEFT_OUT = {"--resume": "last", "--verify": "1"}
"""Options whose value may be left out, and what they mean then."""


class Group(TyperGroup):
    """Newer typers load pydantic to read the values of parameters, which takes longer than all else; completion needs none
    of these values."""

    def list_commands(self, ctx: Any) -> list[str]:
        there = super().list_commands(ctx)
        return sorted(
            there, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), there.index(name))
        )

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and ctx.parent is None and difflib.get_close_matches(args[0], ["completion"], cutoff=0.8):
            ctx.fail(
                f"No such command '{args[0]}'. Did you mean '--install-completion' (for the current shell), or "
                "'--show-completion' to copy it?"
            )
        return super().resolve_command(ctx, args)

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


class Resumable(TyperCommand):
    """A command with ``--resume``, which without a value means the last job, or ``--verify``, which without one means every query.

    A ``--verify`` after the first positional argument, the script, belongs to the script.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        filled = _with_value(args)
        if ctx.resilient_parsing:
            return super().parse_args(ctx, filled)
        parser = self.make_parser(ctx)
        parser.allow_interspersed_args = False
        given = parser.parse_args(args=list(filled))[0]
        script = len(args) - len(given.get("arguments") or ()) - 1
        after = [f"{_KEPT}{arg}" if arg.split("=")[0] == "--verify" else arg for arg in args[script:]]
        rest = super().parse_args(ctx, [*filled[:script], *_with_value(after)] if given.get("script") else filled)
        ctx.params["arguments"] = [arg.removeprefix(_KEPT) for arg in ctx.params.get("arguments") or []]
        return rest


_KEPT = "\0"
"""Marks an argument of the script that looks like an option of the command. No argument of a process has this character."""


def _with_value(args: list[str]) -> list[str]:
    own = args[: args.index("--")] if "--" in args else args
    filled = list(args)
    for option, without in _LEFT_OUT.items():
        if option in own:
            place = own.index(option)
            value = own[place + 1] if place + 1 < len(own) else "-"
            if value.startswith("-") or value.endswith(".py"):
                filled[place] = f"{option}={without}"
    return filled
