"""Lineage by OpenLineage (the extra ``lineage``): what jobs and streams read and write, and the decisions as a facet.

``runs`` makes events of records, with data sets and facets, and ``emitter`` sends them. Both import OpenLineage's library, so they are
imported only if lineage is switched on.
"""
