"""Parts that all steps share: the place of a step in its errors, checks of arguments, names of columns of its own."""

from __future__ import annotations

from collections.abc import Collection, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from firesteel.errors import UsageError
from firesteel.task.functions.instances import has_set_up, with_set_up
from firesteel.users_line import caller_place, function_name


class NotTranslated(UsageError):
    """A Column of PySpark means something which only Spark can work out."""


def unused_name(name: str, taken: Collection[str]) -> str:
    """Returns the name, behind as many underscores as make it differ from those taken."""
    while name in taken:
        name = f"_{name}"
    return name


_inside: ContextVar[bool] = ContextVar("firesteel-inside-a-step", default=False)


@contextmanager
def step_at(kind: str) -> Generator[str]:
    """Gives the user's ``file:line``; a UsageError inside gets the step and that place into its message. Steps of which a step is made say
    nothing of themselves: the user did not write them."""
    place = caller_place()
    if _inside.get():
        yield place
        return
    token = _inside.set(True)
    try:
        yield place
    except UsageError as error:
        at = f" at {place}" if place else ""
        told = NotTranslated if isinstance(error, NotTranslated) else UsageError
        raise told(f"In step '{kind}'{at}: {error.message}", hint=error.hint) from None
    finally:
        _inside.reset(token)


def require_function(function: Any, kind: str) -> str:
    """The function's name for messages. Raises UsageError when it cannot be called."""
    if not callable(function):
        hint = f"Give {type(function).__name__} a method __call__." if has_set_up(function) else None
        raise UsageError(f"{kind} wants a function, not {function!r}.", hint=hint)
    return function_name(function)


def settable_function(function: Any, kind: str) -> tuple[str, Any]:
    """The function's name, and itself, or what stands for one with a set-up. Raises UsageError when it cannot be called."""
    return require_function(function, kind), with_set_up(function)


def plain_function(function: Any, kind: str, hint: str = "Give it a plain function.") -> str:
    """The name of a function without a set-up. Raises UsageError for one that has any (``hint``: what to do then), or cannot be called."""
    name = require_function(function, kind)
    if with_set_up(function) is not function:
        given = (
            f"the class {function.__name__}" if isinstance(function, type) else f"{name}, which has setup() or close()"
        )
        raise UsageError(f"{kind} takes no function with a set-up, such as {given}.", hint=hint)
    return name


def require_count(value: Any, what: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{what} must be a whole number of at least {least}, not {value!r}.")
    return value
