"""Parts that all steps share: the place of a step in its errors, checks of arguments, names of columns of its own."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pyarrow as pa

from firesteel.api.steps.pipeline import Pipeline
from firesteel.compile.stream_graph import ChainedStep, KeyedStep, StreamEdge, StreamNode
from firesteel.errors import UsageError
from firesteel.task.functions.instances import has_set_up, with_set_up
from firesteel.task.functions.row_errors import FAIL, NULL, ROUTE, SKIP, OnError, error_schema
from firesteel.task.operators.relational import check_columns, order_type
from firesteel.task.passing import Passing
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


def flat(columns: Iterable[Any], of: type | tuple[type, ...] = list) -> list[Any]:
    """The columns, those of lists among them. ``of``: what counts as a list; in orders a tuple is a column with its direction."""
    return [one for given in columns for one in (given if isinstance(given, of) else [given])]


def check_order(schema: pa.Schema, names: Sequence[str], step: str) -> None:
    """Raises UsageError for columns that are not there or have no order."""
    check_columns(schema, names, step)
    for name in names:
        kind = order_type(schema.field(name).type)
        if kind is None or pa.types.is_decimal256(kind):
            raise UsageError(f"{step} cannot order by '{name}': it is {schema.field(name).type}.")


_ACTIONS = (FAIL, NULL, SKIP, ROUTE)


OnErrorWords = tuple[Any, Any]
"""``on_error`` and ``max_errors`` as the user gave them."""


def on_error(step: str, errors: OnErrorWords, input_schema: pa.Schema, output: pa.Schema | None) -> OnError:
    """Of a function on rows, checked. ``output``: the step's schema; None: of a filter, which makes no rows. Raises UsageError."""
    policy = _checked(step, errors, "" if output is not None else "a filter has no row to make null")
    strict = [field.name for field in output or () if not field.nullable]
    if policy.action == NULL and strict:
        raise UsageError(
            f"{step}: on_error=\"null\" makes every column null, but '{strict[0]}' is declared as not null.",
            hint='Declare it nullable, or use on_error="skip" or "route".',
        )
    if policy.action == ROUTE:
        error_schema(input_schema)
    return policy


def on_group_error(step: str, errors: OnErrorWords, *inputs: pa.Schema) -> OnError:
    """Of a function on groups, checked. Raises UsageError."""
    policy = _checked(step, errors, "a group that fails has no row of its own to make null")
    if policy.action == ROUTE:
        error_schema(*inputs)
    return policy


def _checked(step: str, errors: OnErrorWords, why_not_null: str) -> OnError:
    action, max_errors = errors
    actions = [known for known in _ACTIONS if not why_not_null or known != NULL]
    if action not in actions:
        named = ", ".join(f'"{known}"' for known in actions)
        why = f" ({why_not_null})" if action == NULL else ""
        raise UsageError(f"{step}: on_error is one of {named}, not {action!r}{why}.")
    if action == FAIL:
        if max_errors is not None:
            words = [f'"{known}"' for known in actions if known != FAIL]
            raise UsageError(
                f"{step}: max_errors={max_errors!r} needs on_error={', '.join(words[:-1])} or {words[-1]}: the first error ends the job otherwise."
            )
        return OnError()
    if max_errors is not None:
        require_count(max_errors, f"max_errors of {step}", 0)
    return OnError(action, max_errors)


def errors(pipeline: Pipeline) -> Pipeline:
    """The rows that the last step could not do."""
    with step_at("errors") as place:
        node = pipeline.node
        policy = (
            getattr(node.work.operator, "on_error", None) if isinstance(node.work, ChainedStep | KeyedStep) else None
        )
        if policy is None or policy.action != ROUTE:
            raise UsageError(
                f"{node} routes no rows that failed to a stream of their own.",
                hint='Take .errors of the very stream that a step with on_error="route" returned.',
            )
        schema = error_schema(*(edge.schema for edge in node.inputs))
        edge = StreamEdge(node, combined=schema, routed=True)
        kind = f"errors of {node.name}"
        return pipeline.at(StreamNode(kind, ChainedStep(Passing(kind)), schema, (edge,), place=place))
