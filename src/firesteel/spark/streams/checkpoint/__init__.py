"""The checkpoint of a streaming query: its files, its state brought to another number of partitions, what a crash left of that.

Begin with ``checkpoint_files``, then ``repartition``.
"""
