"""Plain data of a job that both planes need: its graph, the order of keys, sizes, sketches, descriptors, columns of numbers.

Begin with ``job_graph``. Imports numpy, ``options``, ``errors`` and ``humanize``; never pyarrow, pyspark or a connector.
"""
