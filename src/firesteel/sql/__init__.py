"""DataFrames as jobs: Spark's optimised logical plan becomes steps whose tasks run fragments on an embedded engine.

Begin with ``takeover`` (a DataFrame to a pipeline), then ``catalyst`` (Spark's plan to nodes), ``planner`` (operators to steps)
and ``expressions`` (the allow-list: what is not in it stays on Spark).
"""
