"""All that is planned while the job runs because of its joins, as the scheduler asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from firesteel.scheduler.joins.adaptive import AdaptiveJoins
from firesteel.scheduler.joins.runtime_filters import Filters
from firesteel.scheduler.joins.waits import Waits
from firesteel.scheduler.kernel.events import SourceNarrowed


class Joins(Protocol):
    """Answers that the scheduler needs of its joins."""

    @property
    def is_open(self) -> bool:
        """Something is put off: every event may end that."""
        ...

    def consider(self) -> None:
        """Decides the joins that can be decided now, before vertices are initialised."""
        ...

    def puts_off(self, vertex: int) -> bool:
        """Returns whether a vertex is to wait that could be initialised, or could but for inputs that are not there yet."""
        ...

    def narrowed(self, event: SourceNarrowed) -> None: ...

    def event_handled(self) -> None:
        """All that can run is deployed."""
        ...

    def waiting_for(self) -> list[str]: ...


class NoJoins:
    """Joins stay as they were compiled, and sources read all of their splits."""

    is_open = False

    def consider(self) -> None: ...

    def puts_off(self, vertex: int) -> bool:
        return False

    def narrowed(self, event: SourceNarrowed) -> None: ...

    def event_handled(self) -> None: ...

    def waiting_for(self) -> list[str]:
        return []


@dataclass(slots=True, eq=False)
class JoinPlanning:
    """``adaptive``: None: every join exchanges both of its sides."""

    waits: Waits
    adaptive: AdaptiveJoins | None
    filters: Filters

    @property
    def is_open(self) -> bool:
        return self.waits.is_open

    def consider(self) -> None:
        self.waits.count_idle()
        if self.adaptive is not None:
            self.adaptive.consider()

    def puts_off(self, vertex: int) -> bool:
        if self.filters.is_asked(vertex):
            return True
        if self.adaptive is not None and self.adaptive.puts_off(vertex):
            return True
        return self.filters.puts_off(vertex)

    def narrowed(self, event: SourceNarrowed) -> None:
        self.filters.narrowed(event)

    def event_handled(self) -> None:
        self.waits.event_handled()

    def waiting_for(self) -> list[str]:
        return [*self.waits.waiting_for(), *self.filters.waiting_for()]
