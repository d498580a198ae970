"""The choice whether a job has standing tasks, and how these reach its driver."""

from __future__ import annotations

from functools import partial
from typing import Any

from firesteel.options import STANDING_TASKS, STANDING_TASKS_MAX_INPUT, Options
from firesteel.spark.driver.threads import pins_threads
from firesteel.spark.placement.pools import is_fair
from firesteel.spark.session.own_workers import own_workers
from firesteel.spark.session.preflight import runs_our_interpreter
from firesteel.spark.session.sessions import grows, is_local, local_slots, setting
from firesteel.spark.standing.doors import UnixDoor, encrypts, tcp_door
from firesteel.spark.standing.slots import ExecutorsSlots, FixedSlots, Slots
from firesteel.spark.standing.small import SmallStanding, SmallStandingTasks
from firesteel.spark.standing.tasks import Standing, no_standing_tasks
from firesteel.task.executor.information import Blob

WORKER_REUSE = "spark.python.worker.reuse"


def standing_tasks(
    context: Any, options: Options, job: Blob, job_id: str, job_name: str, *, ran: dict[int, str]
) -> Standing:
    """None where it is off, where a process must not serve two tasks, where threads have no Spark properties of their own, or where :func:`_reached` says
    so. ``ran``: see :class:`SmallStanding`."""
    kept = str(setting(context, WORKER_REUSE, "true")).lower() == "true"
    if not (options[STANDING_TASKS] and kept and pins_threads(context) and _reached(context)):
        return no_standing_tasks
    local = is_local(context)
    slots: Slots = FixedSlots(local_slots(context)) if local else ExecutorsSlots(context)
    given = SmallStanding(
        context,
        job,
        job_id,
        job_name,
        slots=slots,
        grows=grows(context),
        is_fair=is_fair(context),
        max_input=options[STANDING_TASKS_MAX_INPUT],
        own_workers=own_workers(context),
        open_door=UnixDoor if local else partial(tcp_door, context),
        ran=ran,
    )
    return partial(SmallStandingTasks, given)


def _reached(context: Any) -> bool:
    """On a local master, by its own interpreter; on a cluster, where what is said may be read on the way."""
    return runs_our_interpreter(context) if is_local(context) else not encrypts(context)
