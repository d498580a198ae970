"""On a standalone cluster: slow nodes, executors that die, slots of several sizes."""
