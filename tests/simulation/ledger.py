"""The simulation's own book of winners: kept from events and commands alone, and never from what the scheduler says."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from tests.simulation.reading import reads_one_of

from firesteel.model.arrays import Ints, constant, written
from firesteel.model.job_graph import JobGraph
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel import events as e
from firesteel.simulation.cluster.reading import inputs_of
from firesteel.simulation.cluster.storage import Storage
from firesteel.simulation.violation import check

NO_TOKEN = -1


class Ledger:
    """A result that was told and is not discarded in the same breath has won. There is one such for each subtask, until
    it is discarded, or its subtask is deployed anew."""

    def __init__(self, graph: JobGraph, storage: Storage) -> None:
        self._graph = graph
        self._storage = storage
        self._winner: list[NDArray[np.int32]] = [np.empty(0, np.int32) for _ in graph.vertices]
        self._attempt: list[NDArray[np.int32]] = [constant(0, np.int32(0)) for _ in graph.vertices]
        self._void: NDArray[np.bool_] = np.zeros(0, np.bool_)
        """By token: it was refused, or has won and does not count any more."""
        self.reopened = 0
        """Winners that did not stay it."""
        self._won: NDArray[np.bool_] = np.zeros(0, np.bool_)
        """By token: it has won, whatever became of it."""

    def deployed(self, command: c.Deploy) -> None:
        """Of a subtask that has a winner: only if all that it left is gone, so that it must run again."""
        winner = self._of(command.vertex, command.parallelism)
        again = command.subtasks[winner[command.subtasks] != NO_TOKEN]
        if len(again):
            tokens = winner[again].astype(np.int64)
            for dataset in self._graph.vertices[command.vertex].outputs:
                left = self._storage.is_readable(dataset, tokens).any()
                check(not left, f"subtasks of vertex {command.vertex} are deployed although they have won")
            self._forget(tokens)
            self.reopened += len(again)
            winner[again] = NO_TOKEN
        for gate, ranges in inputs_of(command):
            self._reads_winners(command, gate, ranges)

    def heard(self, event: e.ExecutionsFinished, commands: list[c.Command]) -> None:
        """The scheduler was told, and answers with these commands, which are not carried out yet."""
        tokens = event.reports.tokens
        self._reserve(int(tokens.max(initial=0)) + 1)
        for command in commands:
            if isinstance(command, c.DiscardExecutions):
                self._forget(command.tokens)
        fresh = ~self._void[tokens]
        winner = self._winner[event.vertex]
        for subtasks, won, attempts in [(event.subtasks[fresh], tokens[fresh], event.attempts[fresh])]:
            free = winner[subtasks] == NO_TOKEN
            winner[subtasks[free]] = won[free]
            self._attempt[event.vertex] = written(self._attempt[event.vertex], subtasks[free], attempts[free])
            self._won[won[free]] = True
            one = bool((winner[subtasks] == won).all())
            check(one, f"a subtask of vertex {event.vertex} has two winners")

    def discarded(self, command: c.DiscardExecutions) -> None:
        """Takes back that these executions had won."""
        self._reserve(int(command.tokens.max(initial=0)) + 1)
        self._forget(command.tokens)
        winner = self._winner[command.vertex]
        over = command.subtasks[winner[command.subtasks] == command.tokens]
        winner[over] = NO_TOKEN
        self.reopened += len(over)

    def check_published(self, command: c.CommitSinks) -> None:
        for vertex, winners in command.winners.items():
            own = bool((self._winner[vertex] != NO_TOKEN).all()) and len(winners) == len(self._winner[vertex])
            own = own and self._attempt[vertex].tolist() == [attempt for attempt, _ in winners]
            check(own, f"vertex {vertex} publishes what did not win")

    def check_finished(self) -> None:
        """Each subtask of each vertex has its winner."""
        for vertex, winner in zip(self._graph.vertices, self._winner, strict=True):
            missing = int((winner == NO_TOKEN).sum())
            check(not missing, f"the job has finished, and {missing} subtasks of vertex {vertex.id} have no winner")

    def winning_attempts(self, vertex: int) -> NDArray[np.int32]:
        """The attempt of each subtask that has won, any number where none has."""
        return self._attempt[vertex]

    def is_void(self, token: int) -> bool:
        """It was refused, or does not count any more."""
        return token < len(self._void) and bool(self._void[token])

    def winners_among(self, chosen: NDArray[np.bool_]) -> int:
        """Returns the number of these that have ever won. ``chosen``: by row of the cluster's executions; token ``r + 1`` is row ``r``'s."""
        return int(chosen[np.flatnonzero(self._won) - 1].sum())

    def _reads_winners(self, command: c.Deploy, gate: c.GateDescriptor, ranges: c.InputRanges) -> None:
        winner = self._winner[self._graph.datasets[gate.dataset].producer]
        won = winner if gate.partitions is None else winner[gate.partitions]
        bad = won != gate.tokens
        if bad.any():
            told = bool(reads_one_of(gate, ranges, bad).any())
            check(not told, f"vertex {command.vertex} is told to read what did not win, of data set {gate.dataset}")

    def _of(self, vertex: int, parallelism: int) -> NDArray[np.int32]:
        if not len(self._winner[vertex]):
            self._winner[vertex] = np.full(parallelism, NO_TOKEN, np.int32)
            self._attempt[vertex] = constant(parallelism, np.int32(0))
        return self._winner[vertex]

    def _forget(self, tokens: Ints) -> None:
        self._void[tokens] = True

    def _reserve(self, size: int) -> None:
        have = len(self._void)
        if size > have:
            more = np.zeros(max(size, have * 5 // 4) - have, np.bool_)
            self._void, self._won = np.concatenate((self._void, more)), np.concatenate((self._won, more))
