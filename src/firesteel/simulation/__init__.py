"""A cluster in the machine: made-up nodes, slots and storage under a virtual clock, driven by the real scheduler."""
