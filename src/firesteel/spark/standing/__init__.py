"""Standing tasks: Spark tasks that stay for a moment and run small executions one after another, so that none needs a Spark job of its own.

Begin with ``tasks``, all that the job's loop knows of them, and ``local``, which does it on local masters; ``crew`` are the Spark tasks and their connections, ``work`` is what waits for them. The
executor's half is ``task.executor.standing``.
"""
