"""Rows and groups that a step's function cannot do: ``on_error`` and ``max_errors``, and the stream of those rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from firesteel.api.steps.common import require_count, step_at
from firesteel.api.steps.pipeline import Pipeline
from firesteel.compile.stream_graph import ChainedStep, KeyedStep, StreamEdge, StreamNode
from firesteel.errors import UsageError
from firesteel.task.functions.row_errors import FAIL, NULL, ROUTE, SKIP, OnError, error_schema
from firesteel.task.passing import Passing

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
