"""From the steps that a user wrote to the job graph: checked, fused, its sources' splits listed, the program of each vertex built.

Begin with ``compiler.compile_job``, then ``stream_graph`` (its input) and ``chaining`` (what shares a task). May know ``task``'s
programs, ``connectors``, and plans with their texts (``plan``, ``render``); no Spark job runs here.
"""
