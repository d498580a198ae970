"""Functions that an option names as ``module:function``: loaded, and called so that what they raise is told as the user's.

Stdlib only: the control plane and executors load them alike.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from firesteel.errors import FiresteelError, UsageError, error_words


class OptionFunctionError(FiresteelError):
    """A function that an option names raised, or gave back what was not agreed. ``cause_trace``: the user's frames."""


@dataclass(frozen=True, slots=True)
class OptionFunction:
    """A loaded function; in a message it is ``option = 'module:function'``."""

    option: str
    named: str
    """``module:function``, as the option says."""
    function: Callable[..., Any]

    def __str__(self) -> str:
        return f"{self.option} = '{self.named}'"

    def __call__(self, *args: Any) -> Any:
        """Calls the function. Raises OptionFunctionError for its errors; Firesteel's own errors pass."""
        return self.call(self.function, *args)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """The same of another function of the user's, such as a method of what this one returned."""
        try:
            return function(*args)
        except FiresteelError:
            raise
        except (Exception, SystemExit) as error:
            raise OptionFunctionError(f"{self} raised {error_words(error)}.", cause_trace=_frames(error)) from error

    def complaint(self, text: str, hint: str | None = None) -> OptionFunctionError:
        """The error for something wrong that it gave; ``text`` starts with a verb ("returned ...")."""
        return OptionFunctionError(f"{self} {text}.", hint=hint)


def load_function(option: str, text: str, hint: str | None = None) -> OptionFunction:
    """The function, class or other callable that ``text``, the value of the option of this key, names as ``module:function``.

    ``function`` may have dots; the module ``__main__`` is the program that runs. ``hint``: the end of each message. Raises
    UsageError where there is none, with the user's frames where importing the module raised.
    """
    said = f"{option} = '{text}'"
    module, _, name = text.partition(":")
    if not module or not name:
        raise UsageError(f"{said} does not name a function.", hint=hint or "Write 'module:function'.")
    try:
        __import__(module)  # unlike importlib's functions, it leaves no frames of its own in the user's traces
    except ModuleNotFoundError as error:
        where = hint or "Put its folder or its package on PYTHONPATH."
        raise UsageError(f"{said} cannot be imported: {error}.", hint=where) from error
    except (Exception, SystemExit) as error:
        words = f"{said} cannot be imported: {error_words(error)}."
        raise UsageError(words, hint=hint, cause_trace=_frames(error)) from error
    found: Any = sys.modules[module]
    for part in name.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{said}: there is no '{name}' in {module}.", hint=hint)
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"{said} is {type(found).__name__}, which cannot be called.", hint=hint)
    return OptionFunction(option, text, found)


def _frames(error: BaseException) -> str:
    """The traceback below the frame that caught it, which is ours."""
    trace = error.__traceback__
    return "".join(traceback.format_exception(type(error), error, trace and trace.tb_next))
