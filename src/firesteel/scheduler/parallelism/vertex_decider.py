"""A parallelism decider of the user's own (FLIP-187: VertexParallelismDecider), beside Firesteel's."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from firesteel.humanize import format_count
from firesteel.option_functions import OptionFunction, load_function
from firesteel.options import DECIDER_FUNCTION, Options
from firesteel.scheduler.inputs import DirectInputs
from firesteel.scheduler.parallelism.decider import FILES, IDLE_SLOTS, decide_vertex
from firesteel.scheduler.parallelism.model import Bounds, ConsumedResult, Longs, VertexPlan
from firesteel.scheduler.parallelism.replay import TAPERED
from firesteel.scheduler.parallelism.waves import TASK_DURATION

_DECIDED = ("by-bytes", "by-count", FILES, IDLE_SLOTS, TAPERED, TASK_DURATION)
"""Rules by which a parallelism is chosen. By any other it is given: set, its forward group's, or one for a global input."""
_HOW = (
    f"{DECIDER_FUNCTION.key} is 'module:function'; the function is given an UndecidedStep and returns a whole number."
)


@dataclass(frozen=True, slots=True)
class UndecidedStep:
    """A step whose inputs are all there and whose parallelism is to be decided.

    ``name``, ``uid``: of the first of its chained steps, and as ``explain`` shows it. ``minimum``, ``maximum``: what may be
    answered. ``data_volume``: ``data-volume-per-task``, plain bytes. ``slots``: tasks that can run at once, as far as
    known. ``parallelism``: what Firesteel itself would decide.
    """

    name: str
    uid: str
    inputs: tuple[ConsumedResult, ...]
    minimum: int
    maximum: int
    data_volume: int
    slots: int
    parallelism: int


class VertexParallelismDecider(Protocol):
    """Decides how parallel a step is, in the place of Firesteel (FLIP-187), as ``firesteel.decider.function`` names it.

    It is called in the driver, once for each step with inputs that has no parallelism of its own or of its forward group, when
    all of them are there; what the subtasks read is cut by Firesteel. Whatever it raises fails the job.
    """

    def __call__(self, step: UndecidedStep, /) -> int:
        """Returns the number of subtasks, from ``step.minimum`` to ``step.maximum``."""
        ...


class Decider:
    """Firesteel's own, or with the user's function in front of it."""

    def __init__(self, options: Options, side_inputs: DirectInputs) -> None:
        """Raises UsageError when the option names nothing that can be loaded."""
        named = options[DECIDER_FUNCTION]
        self._side_inputs = side_inputs
        self._function = None if named is None else load_function(DECIDER_FUNCTION.key, named, _HOW)

    def decide(self, inputs: Sequence[ConsumedResult], bounds: Bounds, name: str, uid: str = "") -> VertexPlan:
        """As ``decide_vertex``. Raises OptionFunctionError where the function raises, or answers what is out of bounds."""
        plan = decide_vertex(inputs, bounds)
        if self._function is None or plan.rule not in _DECIDED:
            return plan
        low, high = bounds.interval()
        step = UndecidedStep(
            name,
            uid,
            tuple(map(_unwritable, inputs)),
            low,
            high,
            bounds.data_volume,
            bounds.slots,
            parallelism=plan.parallelism,
        )
        function = self._function
        answer = self._side_inputs.ask(lambda: _checked(function, function(step), step))
        said = replace(bounds, fixed=answer, fixed_rule=self._function.named)
        return decide_vertex(inputs, said)


def _unwritable(result: ConsumedResult) -> ConsumedResult:
    """The same, of columns that are not for the user to change: they are the scheduler's own."""
    sums, cells = _view(result.subpartition_bytes), _view(result.cells)
    return replace(result, subpartition_bytes=sums, cells=cells)


def _view(sizes: Longs | None) -> Longs | None:
    if sizes is None:
        return None
    view = sizes.view()
    view.setflags(write=False)
    return view


def _checked(function: OptionFunction, answer: Any, step: UndecidedStep) -> int:
    try:
        if isinstance(answer, bool):
            raise TypeError
        number = operator.index(answer)
    except TypeError:
        text = "nothing (None)" if answer is None else f"{answer!r:.100}, a {type(answer).__name__}"
        raise function.complaint(f"returned {text}, where a whole number is due", _HOW) from None
    if not step.minimum <= number <= step.maximum:
        bounds = f"{format_count(step.minimum)} to {format_count(step.maximum)}"
        hint = "Answer within step.minimum and step.maximum, or set min-parallelism and max-parallelism."
        raise function.complaint(f"returned {number} for '{step.name}', where {bounds} subtasks are allowed", hint)
    return number
