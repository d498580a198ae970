"""Tables of Delta and Iceberg: tasks write and read their Parquet files, and their own Python libraries keep their logs, on the driver.

Begin with ``sink``.
"""
