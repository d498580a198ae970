"""DataFrames as jobs: Spark's optimised logical plan becomes relations, and these become steps.

Begin with ``takeover`` (a DataFrame to a pipeline) and ``reader`` (which operator has which rule). ``plans`` reads Spark's plans,
``operators``, ``scans`` and ``python`` make relations, ``steps`` makes their steps. Whatever no rule knows stays on Spark.
"""
