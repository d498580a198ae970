"""Blocking results as objects on storage: how rows are hashed, ordered, encoded, written and read.

Begin with ``layout`` (the format), ``writer`` and ``reader``. ``order`` has results by ranges of keys, ``storage`` where objects lie.
Needs numpy and pyarrow; imports ``model`` and ``errors``.
"""
