"""Sources and sinks. Begin with ``base``, the public protocols; then ``files`` (what all files share) and ``formats`` (one module each).

Needs numpy and pyarrow; imports ``task`` (contexts and writers), ``results``, ``errors`` and ``humanize``.
"""
