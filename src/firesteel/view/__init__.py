"""A running job as its user sees it: on a terminal, as JSON lines, in a notebook. Begin with ``progress``."""
