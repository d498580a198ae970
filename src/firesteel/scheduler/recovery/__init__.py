"""The control plane's half of recovery, without I/O: the records of a job's log, events as bytes, and a scheduler rebuilt by them. Begin with ``records``.

The log holds the events that a scheduler handled, and nothing of what followed. The next driver makes a scheduler of the same graph, options and
``inputs``, and feeds it the same events. So a scheduler is built in one way only. Parallelism, ranges, joins, merges, blocked nodes and
counts of restarts are decided again from the same numbers. Commands are not carried out again: ``outstanding`` folds them to what is still
to be done, and ``reconcile`` makes events of all that has changed.
"""
