"""All that a job reads and writes: data sets by name, and which columns come from which, where steps are expressions. Begin with ``external``."""
