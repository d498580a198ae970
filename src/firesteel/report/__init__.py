"""Reports made of a journal: explain, history, tables. Same records, same text; nothing here asks Spark or the scheduler.

Begin with ``history`` (jobs) and ``streams``: the folds that everything else reads.
"""
