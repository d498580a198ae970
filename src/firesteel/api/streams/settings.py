"""Settings of a step, made after it: its name, parallelism, chaining, group, whether it may be mirrored."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Self

from firesteel.api.caller import caller_place
from firesteel.api.steps.common import require_count, step_at
from firesteel.compile.stream_graph import Chaining, StepConfig, StreamNode
from firesteel.model.slot_sharing_group import SlotSharingGroup, as_group


class Configurable:
    """A stream or a sink whose last step can be configured. Every method returns the same object."""

    def _config(self, setting: str) -> StepConfig:
        """The last step's settings. ``setting``: for messages. Raises UsageError if there is no step to set it on."""
        raise NotImplementedError

    @contextmanager
    def _setting(self, setting: str) -> Generator[StepConfig]:
        """The last step's settings; an error inside gets the user's place."""
        with step_at(setting):
            yield self._config(setting)

    def name(self, name: str) -> Self:
        """Sets the name of the step in progress, explain and Spark's UI."""
        with self._setting("name") as config:
            config.name = str(name)
        return self

    def uid(self, uid: str) -> Self:
        """An identifier of the step that stays the same when the pipeline around it changes."""
        with self._setting("uid") as config:
            config.uid = str(uid)
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Runs the step in exactly so many subtasks, instead of letting the scheduler decide."""
        with self._setting("set_parallelism") as config:
            config.parallelism = require_count(parallelism, "set_parallelism()", 1)
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Runs the step in at most so many subtasks."""
        with self._setting("set_max_parallelism") as config:
            config.max_parallelism = require_count(max_parallelism, "set_max_parallelism()", 1)
        return self

    def disable_chaining(self) -> Self:
        """Shares no task with the steps before and after it."""
        with self._setting("disable_chaining") as config:
            config.chaining = Chaining.NEVER
        return self

    def start_new_chain(self) -> Self:
        """Shares no task with the step before it."""
        with self._setting("start_new_chain") as config:
            config.chaining = Chaining.HEAD
        return self

    def slot_sharing_group(self, group: SlotSharingGroup | str) -> Self:
        """Puts the step into a slot sharing group; resources that the group has are what each of its slots needs.

        A step that is put into none takes its inputs' group if they all share one, else ``"default"``, which may be named
        here. Steps share a task only within one group. Sharing is a hint, not a guarantee. What is registered for the
        name (``env.register_slot_sharing_group``, ``slot-sharing-group.<name>.*``) replaces the resources given here.
        """
        with self._setting("slot_sharing_group") as config:
            config.slot_sharing_group = as_group(group)
            config.group_place = caller_place()
        return self

    def no_speculation(self) -> Self:
        """Never mirrors the step, nor the steps that share its task, however slow one of its executions is."""
        with self._setting("no_speculation") as config:
            config.speculative = False
        return self

    def side_effects(self) -> Self:
        """Says that its functions act on the outside (call a service, write files of their own).

        No two attempts of a subtask run at the same time then, so there are no mirrors either. An attempt that failed is
        still followed by another one: what it did, it may do twice.
        """
        with self._setting("side_effects") as config:
            config.side_effects = True
        return self

    def as_nondeterministic(self) -> Self:
        """Says that its functions may give other rows when they run again (random numbers, the time, a service's answers).

        As PySpark's ``udf(...).asNondeterministic()``. When one of its subtasks has to run again after somebody read what
        it gave before, whoever read it runs again too, so that all of them see the same rows.
        """
        with self._setting("as_nondeterministic") as config:
            config.deterministic = False
        return self

    asNondeterministic = as_nondeterministic  # noqa: N815


class StreamSink(Configurable):
    """A sink that ``env.execute()`` will run."""

    def __init__(self, node: StreamNode) -> None:
        self._node = node

    def _config(self, setting: str) -> StepConfig:
        return self._node.config

    def __repr__(self) -> str:
        return f"StreamSink[{self._node.name}]"
