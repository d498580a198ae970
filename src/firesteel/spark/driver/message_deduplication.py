"""Finds the messages of a job that are new. Each comes twice, through the channel and as its task's result."""

from __future__ import annotations

from collections.abc import Iterable

from firesteel.task.executor.messages import FinishedMessages, Where


class MessageDeduplication:
    """Remembers (number of the batch, subtask, token) until the batch is over."""

    def __init__(self) -> None:
        self._seen: dict[int, set[tuple[int, int]]] = {}

    def fresh(self, messages: FinishedMessages) -> FinishedMessages:
        """Returns the messages that were not here before; from now on they were."""
        columns = (messages.header[name].tolist() for name in ("batch", "subtask", "token"))
        new: list[int] = []
        number, seen = -1, set[tuple[int, int]]()
        for place, (batch, subtask, token) in enumerate(zip(*columns, strict=True)):
            if batch != number:
                number, seen = batch, self._seen.setdefault(batch, set())
            if (subtask, token) not in seen:
                seen.add((subtask, token))
                new.append(place)
        return messages if len(new) == len(messages) else messages.select(new)

    def is_fresh(self, where: Where) -> bool:
        """The same for one."""
        seen = self._seen.setdefault(where.batch, set())
        known = (where.subtask, where.token) in seen
        seen.add((where.subtask, where.token))
        return not known

    def forget(self, batches: Iterable[int]) -> None:
        """Forgets executions that are over, their results looked at; should one of their messages come yet, the scheduler knows it is stale."""
        for number in batches:
            self._seen.pop(number, None)
