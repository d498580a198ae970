"""A PySpark script as it is, computed by our own tasks. Begin with ``handle``; ``hooks`` puts functions in the place of PySpark's.

``actions`` are those that bring rows to the driver, ``writes`` those of a DataFrame's writers, ``commands`` those of SQL; the latter two
give Spark ``staged`` rows, so that what is written, and how, stays Spark's. ``targets`` says where Spark has to look first.
"""
