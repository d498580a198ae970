"""Spark's operators as steps. Begin with ``rows``; the rules are beside it: ``relational``, ``grouping``, ``joins``, ``windows``; those of files are in ``sql.scans``."""
