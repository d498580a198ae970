"""Lineage by OpenLineage (the extra ``lineage``): what jobs and streams read and write, and the decisions as a facet.

Begin with ``runs``: it makes events of records, ``datasets`` and ``facets`` their parts, ``emitter`` sends them. The library is loaded by these
modules, and they only where lineage is asked for.
"""
