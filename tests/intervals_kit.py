"""Steps whose tasks write down where they ran, from when until when, and with which addresses; and what follows from it."""

from __future__ import annotations

import json
from itertools import groupby

import pyarrow as pa

SCHEMA = pa.schema([("v", pa.int64())])


def busy(folder, at_once, seconds=0.5, patience=600.0):
    """Squares ``v``. Each task waits until ``at_once`` of them have come (the next so many, and so on), for ``patience`` at most,
    and a little longer: so as many run at once as may, and one more than that would be seen.
    """
    where = str(folder)

    def square(batches):
        import json
        import os
        import time
        import uuid
        from pathlib import Path

        import pyarrow.compute as pc
        from pyspark import TaskContext

        from firesteel import task_resources
        from firesteel.task.executor.place import here

        place, own = Path(where), uuid.uuid4().hex
        began = time.time()
        (place / f"came-{own}").touch()
        until = began + patience
        number = len(list(place.glob("came-*")))
        wanted = -(-number // at_once) * at_once
        while len(list(place.glob("came-*"))) < wanted and time.time() < until:
            time.sleep(0.01)
        time.sleep(seconds)
        context = TaskContext.get()
        told = {
            "host": os.environ.get("SPARK_LOCAL_IP", ""),
            "executor": here().executor,
            "addresses": {name: list(held) for name, held in task_resources().addresses.items()},
            "cpus": context.cpus(),
            "threads": os.environ.get("OPENBLAS_NUM_THREADS", ""),
        }
        for batch in batches:
            yield pa.record_batch([pc.multiply(batch.column("v"), batch.column("v"))], schema=batch.schema)
        (place / f"ran-{own}").write_text(json.dumps({**told, "began": began, "ended": time.time()}))

    return square


def intervals(folder):
    """Of all tasks that ran to their end."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("ran-*"))]


def most_at_once(ran):
    """How many ran at the same time, at most."""
    moments = sorted([(one["began"], 1) for one in ran] + [(one["ended"], -1) for one in ran])
    running, most = 0, 0
    for _, step in moments:
        running += step
        most = max(most, running)
    return most


def most_by(ran, key):
    """The same for each group of them."""
    groups = groupby(sorted(ran, key=key), key)
    return {name: most_at_once(list(own)) for name, own in groups}
