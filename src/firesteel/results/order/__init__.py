"""Results whose rows are in order: keys as bytes, sorted writing, reading by ranges of keys. Begin with ``ordering``."""
