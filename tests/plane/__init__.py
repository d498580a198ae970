"""A plane without a JVM, on which API tests run by default: real jobs, real task code, Python workers as Spark has them.

:class:`plane.session.Session` is handed to an ``ExecutionEnvironment`` in the place of a SparkSession. It answers the few
calls that Firesteel's driver makes on PySpark (``runJob``, tags, accumulators, the status store), so that all of ours runs as
it is: submission, the job's loop, messages, publishing, cleaning; and in forked worker processes the executor's half, whose
functions and rows arrive pickled. It has no DataFrames, no streams, no resource profiles and one executor on a local master.

Begin reading at ``session``; ``jobs`` runs tasks in slots, ``workers`` are the processes, ``java`` is what py4j would reach.
"""
