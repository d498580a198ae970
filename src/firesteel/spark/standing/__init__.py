"""Standing tasks: Spark tasks that stay for a moment and run small executions one after another, so that none needs a Spark job of its own.

Begin with ``tasks``, all that the job's loop knows of them, ``choice``, which says where there are any, and ``small``, which decides for them; ``crew`` are the Spark tasks,
``doors`` where they connect, ``lines`` their connections, ``slots`` how many there may be, ``work`` is what waits for them. The executor's half is ``task.executor.standing``.
"""
