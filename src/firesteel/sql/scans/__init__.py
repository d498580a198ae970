"""Relations that our tasks read themselves. Begin with ``relation``; ``columns``, ``chosen``, ``hints`` say what of them a query needs, ``listing`` which files."""
