"""A PySpark script as it is, computed by our own tasks. Begin with ``handle``; ``hooks`` puts functions in the place of PySpark's.

They ask ``takeover``, which chooses who computes each query and records that (``record``). ``in_process`` runs those that need no Spark job.
``writes`` has those of a DataFrame's writers. Writers and SQL commands give Spark the rows that were computed, so Spark still decides what is
written, and how.
"""
