"""The control plane: pure Python, no I/O, no pyspark. ``factory.create_scheduler(job_graph, options).handle(event)``.

Nothing is imported here: readers of journals want the records alone.
"""
