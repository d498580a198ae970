"""Steps that call a service: coroutines on the worker's event loop, bounded in flight, repeated, and at a rate that the job's tasks share.

Begin with ``map_async``.
"""
