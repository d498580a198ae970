"""A slot inside its worker: what it holds, memory watched, thread pools sized, workers that may take no slot any more thrown away, and processes that hold external resources.

Begin with ``slot`` (what the driver tells), then ``memory_watch``. Imported by ``spark_task``; stdlib and pyarrow.
"""
