"""The executor's half of a deployment: descriptors decoded, slots and memory watched, results told to the driver.

Begin with ``spark_task``. Stdlib, numpy and pyarrow; pyspark only inside functions.
"""
