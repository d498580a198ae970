"""``firesteel decide``, and what a job would have decided with other options. Begin with ``decide``."""
