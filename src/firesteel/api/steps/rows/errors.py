"""Rows that a step's function cannot do: ``on_error`` and ``max_errors``, and the stream of those rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from firesteel.api.steps.common import require_count, step_at
from firesteel.api.steps.pipeline import Pipeline
from firesteel.compile.stream_graph import ChainedStep, StreamEdge, StreamNode
from firesteel.errors import UsageError
from firesteel.task.functions.row_errors import FAIL, NULL, ROUTE, SKIP, OnError, error_schema
from firesteel.task.passing import Passing

_ACTIONS = (FAIL, NULL, SKIP, ROUTE)


def on_error(step: str, action: Any, max_errors: Any, input_schema: pa.Schema, output: pa.Schema | None) -> OnError:
    """Checked. ``output``: the step's schema; None: of a filter, which makes no rows. Raises UsageError."""
    actions = [known for known in _ACTIONS if output is not None or known != NULL]
    if action not in actions:
        named = ", ".join(f'"{known}"' for known in actions)
        why = " (a filter has no row to make null)" if action == NULL else ""
        raise UsageError(f"{step}: on_error is one of {named}, not {action!r}{why}.")
    if action == FAIL:
        if max_errors is not None:
            raise UsageError(
                f'{step}: max_errors={max_errors!r} needs on_error="skip", "null" or "route": the first error ends the job otherwise.'
            )
        return OnError()
    if max_errors is not None:
        require_count(max_errors, f"max_errors of {step}", 0)
    strict = [field.name for field in output or () if not field.nullable]
    if action == NULL and strict:
        raise UsageError(
            f"{step}: on_error=\"null\" makes every column null, but '{strict[0]}' is declared as not null.",
            hint='Declare it nullable, or use on_error="skip" or "route".',
        )
    if action == ROUTE:
        error_schema(input_schema)
    return OnError(action, max_errors)


def errors(pipeline: Pipeline) -> Pipeline:
    """The rows that the last step could not do."""
    with step_at("errors") as place:
        node = pipeline.node
        policy = getattr(node.work.operator, "on_error", None) if isinstance(node.work, ChainedStep) else None
        if policy is None or policy.action != ROUTE:
            raise UsageError(
                f"{node} routes no rows that failed to a stream of their own.",
                hint='Take .errors of the very stream that a step with on_error="route" returned.',
            )
        schema = error_schema(node.inputs[0].schema)
        edge = StreamEdge(node, combined=schema, routed=True)
        kind = f"errors of {node.name}"
        return pipeline.at(StreamNode(kind, ChainedStep(Passing(kind)), schema, (edge,), place=place))
