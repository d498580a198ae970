"""The execution graph: vertices, executions as columns, groups of partitions in the place of edges, pipelined regions.

Begin with ``execution_graph``, then ``executions`` (the table) and ``groups``.
"""
