"""Commands about what jobs leave behind: results that are kept (``results``) or removed (``clean``), outputs half published (``recover``)."""
