"""DataFrames as jobs: Spark's optimised logical plan becomes steps whose tasks run queries on an embedded engine.

Begin with ``takeover`` (a DataFrame to a pipeline) and ``planner`` (which operator has which rule). ``plans`` reads Spark's plans,
``operators`` makes steps of them; ``render`` writes their expressions. Whatever no rule knows stays on Spark.
"""
