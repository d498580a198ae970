"""Jobs that run or have run, as users ask about them: the client, its result, records as tables, files left behind.

Begin with ``job_client``. Imports no pyspark.
"""
