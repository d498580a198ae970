"""The driver's half of recovery: the gate that writes a job's log ahead of what follows from it, and jobs that go on. Begin with ``gate``."""
