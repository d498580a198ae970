"""The control plane's half of recovery, without I/O: the records of a job's log, events as bytes, and a scheduler rebuilt by them. Begin with ``records``."""
