"""Lineage by OpenLineage (the extra ``lineage``): what jobs and streams read and write, and the decisions as a facet.

``runs`` makes events of records, with data sets and facets, and ``emitter`` sends them. The library is loaded by these modules, which are
loaded only where lineage is asked for.
"""
