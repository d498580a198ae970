"""Functions of ours in the place of PySpark's methods, while anything is accelerated; PySpark's own are put back behind it.

What another library has put over ours stays, and goes on: ours then do nothing.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firesteel.api.acceleration.takeover import Takeover

SPARKS: Any = object()
"""The answer of an action of ours that Spark is to give itself."""
Action = Callable[..., Any]
"""Takes what is active, PySpark's own method, the object it is a method of, and the arguments."""


_active: list[Takeover] = []
_placed: dict[tuple[type, str], tuple[Any, Any]] = {}
"""(what the class itself had, our function), by class and the method's name."""
_change = threading.Lock()
_within = threading.local()
"""``busy``: this thread is in an action of ours; what that asks of Spark is Spark's."""
_ABSENT = object()


def begin(active: Takeover, actions: Mapping[tuple[type, str], Action]) -> None:
    with _change:
        _active.append(active)
        for (owner, name), action in actions.items():
            if (owner, name) not in _placed and hasattr(owner, name):
                ours = _hooked(getattr(owner, name), action)
                _placed[owner, name] = (vars(owner).get(name, _ABSENT), ours)
                setattr(owner, name, ours)


def end(active: Takeover) -> bool:
    """False: it had ended already."""
    with _change:
        if active not in _active:
            return False
        _active.remove(active)
        if not _active:
            for (owner, name), (before, ours) in list(_placed.items()):
                if vars(owner).get(name) is ours:
                    _put_back(owner, name, before)
                    del _placed[owner, name]
        return True


def _put_back(owner: type, name: str, before: Any) -> None:
    if before is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, before)


def _hooked(original: Action, action: Action) -> Action:
    @functools.wraps(original)
    def asked(target: Any, *args: Any, **kwargs: Any) -> Any:
        active = None if getattr(_within, "busy", False) else _covering(target)
        if active is None:
            return original(target, *args, **kwargs)
        _within.busy = True
        try:
            found = action(active, original, target, *args, **kwargs)
        finally:
            _within.busy = False
        return original(target, *args, **kwargs) if found is SPARKS else found

    return asked


def _covering(target: Any) -> Takeover | None:
    """The latest that is active for the session of a DataFrame, a writer, or for a session."""
    session = getattr(target, "sparkSession", None) or getattr(target, "_spark", target)
    return next((each for each in reversed(_active) if each.covers(session)), None)


def sparks(name: str) -> Action:
    """An action that is never taken over; it is noted."""

    def action(active: Takeover, _original: Action, _target: Any, *_args: Any, **_kwargs: Any) -> Any:
        active.leave(name, f"{name} is Spark's own")
        return SPARKS

    return action
