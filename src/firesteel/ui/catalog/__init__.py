"""Jobs and streams by their ids: found in places of journals, followed while they run, asked and told. Begin with ``source``, then ``jobs``."""
