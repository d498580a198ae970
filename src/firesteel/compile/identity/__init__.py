"""The identity of vertices: exact fingerprints of what a vertex runs and reads, as named facts, so that a difference is a sentence.

Begin with ``prints.JobPrints`` and ``facts`` (what it gives). ``walk`` digests values as they would be shipped: what goes by value by
what it holds (``values``, ``functions``), what goes by name by the source of its module (``modules``) or the version of its
library. ``pure`` has the names of what gives the same answer every time, and ``prints.input_prints`` those of the splits of sources. No pyspark here; files of the user's
are only read. ``compile.fingerprint``, for costs, is coarse on purpose, because it proves nothing.
"""
