"""A PySpark script as it is, computed by our own tasks. Begin with ``handle``; ``hooks`` puts functions in the place of PySpark's.

They ask ``takeover``, which says of each query who computes it, and notes that (``record``). ``actions`` are those that bring rows to the
driver, ``writes`` those of a DataFrame's writers, ``commands`` those of SQL; the latter two give Spark rows that are ``staging``, so that
what is written, and how, stays Spark's. ``targets`` says where Spark has to look first.
"""
