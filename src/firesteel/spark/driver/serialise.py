"""Serialises the program of each vertex, and says which step cannot be."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import pickle
from collections.abc import Iterable, Iterator
from typing import Any

from firesteel.compile.compiled import CompiledJob
from firesteel.errors import UsageError
from firesteel.task.functions.instances import SetUp


def serialise_programs(compiled: CompiledJob) -> dict[int, bytes]:
    """Vertex to its cloudpickled program. Raises UsageError naming the step that cannot be serialised."""
    return {vertex.id: serialise_program(compiled, vertex) for vertex in compiled.job_graph.vertices}


def serialise_program(compiled: CompiledJob, vertex: Any) -> bytes:
    try:
        program = dumps(vertex.program)
    except Exception as error:
        step, part, reason = _culprit(vertex, error)
        place = compiled.places.get(vertex.id)
        at = f" ({place})" if place else ""
        said, hint = _driver_only(part) or (_words(reason), _HINT)
        raise UsageError(f"The step '{step}'{at} cannot be sent to executors: {said}.", hint=hint) from error
    if compiled.job_graph.group_of(vertex.id).external_resources:
        _refuse_shared_variables(program, vertex.name)
    return program


def _refuse_shared_variables(program: bytes, name: str) -> None:
    """Its subtasks run in processes that Spark does not know (``slots.holders``): what they add would be lost."""
    broadcast = b"\x8c\x08_from_id" in program and any(home in program for home in _BROADCASTS)  # as pickled by name
    if broadcast or b"_deserialize_accumulator" in program:
        what = "a broadcast variable" if broadcast else "an accumulator"
        raise UsageError(
            f"The step '{name}' uses {what} of Spark, which Spark does not bring to the processes that hold external resources.",
            hint="Give rows to the function as a side input (with_broadcast), and return counts as rows.",
        )


_BROADCASTS = (b"pyspark.core.broadcast", b"pyspark.broadcast")
_HINT = (
    "Its function refers to something that lives only in this process (a lock, an open file, a connection, a Spark session): "
    "make it inside the function."
)


_DEEP = 4
"""Of containers, attributes and functions within each other, how many are looked into."""


def _driver_only(part: Any) -> tuple[str, str] | None:
    """Names the variable by which a function of the step refers to a stream, an environment or a piece of Spark, and says what to
    do instead; None: it refers to none."""
    for function in _functions(part):
        for name, held in _held(function):
            value = _drivers_in(held, _DEEP, set())
            if value is None:
                continue
            kind, home = type(value).__name__, f"{type(value).__module__}."
            called = getattr(inspect.unwrap(_inner(function)), "__name__", type(function).__name__)
            within = "" if value is held else "holds something that "
            said = (
                f"its function '{called}' uses the variable '{name}', which {within}is of the driver only (type {kind})"
            )
            if home.startswith("firesteel.api.") and hasattr(value, "columns"):
                return said, "Give its rows to the function as a side input (with_broadcast), or join the two streams."
            return said, "Read, write and start jobs outside of functions, as steps of the pipeline."
    return None


def _inner(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _held(function: Any) -> Iterator[tuple[str, Any]]:
    """Yields the values that a function takes along, by name: given arguments, defaults, variables, attributes of its object."""
    while isinstance(function, functools.partial):
        yield from function.keywords.items()
        yield from ((f"argument {i}", value) for i, value in enumerate(function.args, start=1))
        function = function.func
    function = inspect.unwrap(function)
    if inspect.ismethod(function):
        yield "self", function.__self__
        function = function.__func__
    if not inspect.isfunction(function):
        yield from getattr(function, "__dict__", {}).items()
        return
    arguments = inspect.signature(function).parameters.values()
    yield from ((a.name, a.default) for a in arguments if a.default is not inspect.Parameter.empty)
    try:
        variables = inspect.getclosurevars(function)
    except (TypeError, ValueError):  # of a variable that is not bound yet
        return
    yield from variables.globals.items()
    yield from variables.nonlocals.items()


def _drivers_in(value: Any, deep: int, seen: set[int]) -> Any:
    """The piece of the driver that the value is or holds; None: there is none."""
    if id(value) in seen or inspect.ismodule(value) or inspect.isclass(value):
        return None
    seen.add(id(value))
    if _is_drivers(value):
        return value
    if deep == 0 or isinstance(value, str | bytes | int | float):
        return None
    if isinstance(value, dict):
        inside: Iterable[Any] = value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        inside = value
    else:
        inside = [held for _, held in _held(value)]
    return next((found for held in inside if (found := _drivers_in(held, deep - 1, seen)) is not None), None)


def _is_drivers(value: Any) -> bool:
    """A piece of Firesteel's API or of Spark's that cannot be sent."""
    if not f"{type(value).__module__}.".startswith(("firesteel.api.", "pyspark.")):
        return False
    try:
        dumps(value)
    except Exception:
        return True
    return False


def _functions(part: Any) -> Iterator[Any]:
    """Yields the functions that a step calls and holds itself."""
    fields = dataclasses.fields(part) if dataclasses.is_dataclass(part) else ()
    names = [field.name for field in fields] or list(getattr(part, "__dict__", ()))
    held = (getattr(part, name, None) for name in names)
    yield from (
        value.given if isinstance(value, SetUp) else value
        for value in held
        if callable(value) or isinstance(value, SetUp)
    )


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


def _culprit(vertex: Any, error: Exception) -> tuple[str, Any, Exception]:
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
            return str(getattr(part, "name", vertex.name)), part, failed
    return vertex.name, None, error


def _words(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0].rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
