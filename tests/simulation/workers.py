"""Workers that never hold more than they have, and are used by other jobs too. Kept from what really runs where, and never from what the slot pool
says."""

from __future__ import annotations

from collections.abc import Callable

from firesteel.model.arrays import Ints
from firesteel.scheduler.kernel.commands import SlotGrants
from firesteel.scheduler.slots.resource_profile import MEMORY_KINDS
from firesteel.simulation.cluster import workers
from firesteel.simulation.cluster.workers import Held, Worker
from firesteel.simulation.violation import check

_ROUNDING = 1e-6


def check_holds(worker: Worker, exact: bool) -> None:
    """It must not hold more than it has. What was called gone and runs on is nobody's fault; ``exact``: the pool
    alone keeps the promise, of all resources."""
    known = [held for held in worker.slots_held if not held.gone]
    if not known:
        return
    told = f"{worker.name} has {worker.resources}, and its {len(known)} slots hold"
    cores = sum(held.cores for held in known)
    if exact:
        check(cores + worker.foreign <= worker.resources.cpu_cores + _ROUNDING, f"{told} {cores:g} cores")
    for name in {name for held in known for name in held.external}:
        amount = sum(held.external.get(name, 0.0) for held in known)
        check(amount <= worker.resources.external.get(name, 0.0) + _ROUNDING, f"{told} {amount:g} {name}")
    if not any(held.strayed for held in known):
        memory = sum(held.memory for held in known)
        check(memory <= worker.resources.memory + 1, f"{told} {memory:,.0f} B of {worker.resources.memory:,} B")
        _check_kinds(worker, known, told)
    _check_addresses(worker, known)


def _check_kinds(worker: Worker, known: list[Held], told: str) -> None:
    for kind in MEMORY_KINDS:
        most = getattr(worker.resources, kind)
        amount = sum(held.kinds.get(kind, 0.0) for held in known)
        check(most is None or amount <= most + 1, f"{told} {amount:,.0f} B of {most} B as {kind}")


def _check_addresses(worker: Worker, known: list[Held]) -> None:
    for name, own in worker.resources.addresses.items():
        given = dict.fromkeys(own, 0.0)
        for held in known:
            for address in held.addresses.get(name, ()):
                check(address in given, f"{worker.name} has no {name} {address}")
                given[address] += min(1.0, held.external.get(name, 0.0))
        for address, amount in given.items():
            check(amount <= 1 + _ROUNDING, f"{amount:g} of {name} {address} on {worker.name} is held")
        for held in known:
            asked, got = held.external.get(name, 0.0), len(held.addresses.get(name, ()))
            check(got >= asked - _ROUNDING, f"an execution with {asked:g} {name} on {worker.name} has {got} addresses")


class Workers(workers.Workers):
    changed: Callable[[], None] = staticmethod(lambda: None)
    """Is called when what others occupy changes by itself."""

    def hold(self, row: int, worker: Worker, grants: SlotGrants, place: int, *, strayed: bool = False) -> None:
        """An execution begins to run there. Raises ViolationError when the worker then holds more than it has."""
        super().hold(row, worker, grants, place, strayed=strayed)
        check_holds(worker, self.is_exact)

    def share(self, row: int, other: int) -> None:
        """An execution begins to run in the slot of another one."""
        worker = self._of[row] = self._of[other]
        worker.held[row] = worker.held[other]

    def release(self, rows: Ints) -> None:
        """They are over."""
        were_gone = any(self._of[row].held[row].gone for row in rows.tolist() if row in self._of)
        super().release(rows)
        if were_gone:
            self.changed()

    def lose_driver(self, rows: Ints) -> None:
        """These are over, and so are its other jobs."""
        super().release(rows)
        for worker in self:
            worker.foreign = 0.0
            worker.idle_since = None

    def called_gone(self, rows: Ints) -> bool:
        """The scheduler hears that these are gone. True: some of them are not."""
        running = [self._of[row].held[row] for row in rows.tolist() if row in self._of]
        for held in running:
            held.gone = True
        return bool(running)

    def occupied(self) -> dict[str, float]:
        """Cores of each worker that are taken by what is not the scheduler's to run now."""
        found = {w.name: w.foreign + sum(h.spark_cores for h in w.slots_held if h.gone) for w in self}
        return {name: cores for name, cores in found.items() if cores}
