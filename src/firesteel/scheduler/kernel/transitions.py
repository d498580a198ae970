"""Tables of transitions as data: code refuses what is not in them, tests walk them, the documentation draws them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

E = TypeVar("E", bound=Enum)


@dataclass(frozen=True, slots=True)
class Transition(Generic[E]):
    source: E
    target: E
    when: str


class Transitions(Generic[E]):
    """The table of one machine, from its first state on."""

    def __init__(self, start: E, table: Iterable[tuple[E, E, str]]) -> None:
        """``table``: source, target, and when."""
        self.start = start
        self.table = tuple(Transition(*row) for row in table)
        self._legal = {(each.source, each.target) for each in self.table}

    def allows(self, source: E, target: E) -> bool:
        return (source, target) in self._legal

    def check(self, source: E, target: E, who: str, why: str, story: Iterable[str]) -> None:
        """Raises ValueError, with the story, for a transition that is not in the table."""
        if not self.allows(source, target):
            lines = "\n".join(story)
            raise ValueError(f"{who} cannot go from {_name(source)} to {_name(target)} ({why}).\n{lines}")

    def ends(self) -> list[E]:
        """States without a way out, in the order in which the table names them."""
        states = dict.fromkeys(state for each in self.table for state in (each.source, each.target))
        sources = {each.source for each in self.table}
        return [state for state in states if state not in sources]

    def diagram(self) -> str:
        """The table as a mermaid state diagram."""
        lines = ["stateDiagram-v2", f"    [*] --> {_name(self.start)}"]
        lines += [f"    {_name(each.source)} --> {_name(each.target)}: {each.when}" for each in self.table]
        lines += [f"    {_name(state)} --> [*]" for state in self.ends()]
        return "\n".join(lines) + "\n"


def _name(state: Enum) -> str:
    return state.value if isinstance(state.value, str) else state.name
