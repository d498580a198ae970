"""Standing tasks: Spark tasks that stay for a moment and run small executions one after another, so that none needs a Spark job of its own.

Begin with ``work`` (all that the job's loop knows of them, and the queue) and ``small``, which decides for them. ``crew`` starts the Spark tasks, ``lines`` has
their connections. The executor's half is ``task.executor.standing``.

Two other ways were left out. Bundles that are cut beforehand would go by bytes, which say little about time: 100 addresses to fetch are 5 KB.
A pool of processes outside of Spark would take slots that Spark does not count.
"""
