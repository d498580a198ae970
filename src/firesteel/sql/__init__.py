"""DataFrames as jobs: Spark's optimised logical plan becomes relations.

Begin with ``takeover`` (a DataFrame) and ``reader`` (which operator has which rule). ``plans`` reads Spark's plans,
``operators``, ``scans`` and ``python`` make relations, ``compile.relations`` their steps. Whatever no rule knows stays on Spark.
"""
