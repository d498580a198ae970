"""How xdist hands out files of tests. Imported only where its workers run."""

from __future__ import annotations

from contextlib import suppress

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


class Lanes(LoadFileScheduling):
    """With ``--dist loadfile`` all tests on clusters of one shape go to one worker, which makes that cluster once. Without ``--all`` all
    tests on an embedded Spark go to one, too: starting another and warming it up costs more than a third of them.

    A run also ends after a worker has died. That of xdist 3.8 may wait for ever: it hands out again what is finished, and a
    worker begins its last test only when it is told that this is the last one (pytest-xdist issues 1327 and 1378).
    """

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        if file.startswith("tests/cluster/") and file != "tests/cluster/test_resources.py":
            return "tests/cluster"
        return "tests/spark" if file.startswith("tests/spark/") and not self.config.getoption("--all") else file

    def remove_node(self, node: WorkerController) -> str | None:
        """Returns the test that the worker died in, which is not run again."""
        given = self.assigned_work.pop(node)
        left = {scope: tests for scope, tests in given.items() if not all(tests.values())}
        died_in = next((test for tests in left.values() for test, is_done in tests.items() if not is_done), None)
        if died_in is not None:
            left[self._split_scope(died_in)][died_in] = True
        self.workqueue.update({scope: tests for scope, tests in left.items() if not all(tests.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return died_in

    def _assign_work_unit(self, node: WorkerController) -> None:
        with suppress(OSError):  # it has died as well; its tests are handed out again when that is told
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if node not in self.registered_collections:
            return  # it takes the place of another, and does not know the tests yet
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)
