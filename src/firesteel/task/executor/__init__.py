"""The executor's half of a deployment: descriptors decoded, blobs fetched, executions run, results told to the driver.

Begin with ``spark_task``; ``slots`` is what a slot means inside its worker. Stdlib, numpy and pyarrow; pyspark only inside functions.
"""
