"""Serialises the program of each vertex, and says which step cannot be."""

from __future__ import annotations

import pickle
from typing import Any

from firesteel.errors import UsageError
from firesteel.graph.compiled import CompiledJob


def serialise_programs(compiled: CompiledJob) -> dict[int, bytes]:
    """Vertex to its cloudpickled program. Raises UsageError naming the step that cannot be serialised."""
    return {vertex.id: serialise_program(compiled, vertex) for vertex in compiled.job_graph.vertices}


def serialise_program(compiled: CompiledJob, vertex: Any) -> bytes:
    try:
        return dumps(vertex.program)
    except Exception as error:
        step, reason = _culprit(vertex, error)
        place = compiled.places.get(vertex.id)
        at = f" ({place})" if place else ""
        raise UsageError(
            f"The step '{step}'{at} cannot be sent to executors: {_words(reason)}.",
            hint="Its function refers to something that lives only in this process (a lock, an open file, a connection, a "
            "Spark session): make it inside the function.",
        ) from error


def dumps(value: Any) -> bytes:
    from pyspark import cloudpickle

    return cloudpickle.dumps(value)


def dumps_splits(splits: Any) -> bytes:
    """Plain pickle, many times faster, unless something in them is of a class that only this process can import."""
    from pyspark.cloudpickle.cloudpickle import list_registry_pickle_by_value

    try:
        plain = pickle.dumps(splits, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError):  # a function made in another one, say
        return dumps(splits)
    here_only = ("__main__", *list_registry_pickle_by_value())
    return dumps(splits) if any(name.encode() in plain for name in here_only) else plain


def _culprit(vertex: Any, error: Exception) -> tuple[str, Exception]:
    """Tries the parts one by one: the first that fails alone is to blame."""
    program = vertex.program
    head = getattr(program.head, "operator", None) or getattr(program.head, "source", None)
    sinks = [getattr(output, "sink", None) for output in program.outputs]
    for part in [head, *program.operators, *sinks]:
        if part is None:
            continue
        try:
            dumps(part)
        except Exception as failed:
            return str(getattr(part, "name", vertex.name)), failed
    return vertex.name, error


def _words(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0].rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
