"""Slot sharing groups on Spark: resource profiles, what workers have, what a batch needs to run. Begin with ``provisioning``."""
