"""Relations that our tasks read themselves. Begin with ``relation``; ``columns``, ``chosen`` say what of them a query needs, ``listing`` which files."""
